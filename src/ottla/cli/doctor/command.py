"""`ottla doctor`: what stands in the way of a pipeline, before Spark finds it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ottla.base.words import counted
from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Config,
    Json,
    admin_config,
    bootstrap_is_named,
    print_json,
    printable,
)
from ottla.cli.doctor.finding import Finding, Status

_WIDTH = max(len(status.value) for status in Status)


def doctor(
    data_dir: Annotated[Path, typer.Option("--data-dir", help="Where a broker's data would be.")] = Path("ottla-data"),
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Do not look at Java, PySpark and its workers.")] = False,
    no_broker: Annotated[bool, typer.Option("--no-broker", help="Do not look for a broker.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Look for what stands in the way of a broker or a Spark pipeline on this machine, and say what to do about it.

    Java, PySpark, the Python of Spark's workers and the versions of both, a broker and what its listener speaks, a data
    directory. Nothing is changed. On a cluster, run it on a worker machine, too. Exit codes: 0; 1 if there is an error.

    Example: `ottla doctor --bootstrap kafka.example:9092`
    """
    from ottla.cli.doctor.broker import check_broker
    from ottla.cli.doctor.disk import check_data_directory
    from ottla.cli.doctor.python import check_spark

    found: list[Finding] = []
    if not no_spark:
        found += check_spark(os.environ)
    found.append(check_data_directory(data_dir))
    if not no_broker:
        found += check_broker(admin_config(bootstrap, config), named=bootstrap_is_named())
    if as_json:
        print_json([{**each._asdict(), "status": each.status.value} for each in found])
    else:
        print("\n".join(lines(found)))
    raise typer.Exit(int(any(each.status is Status.ERROR for each in found)))


def lines(found: Sequence[Finding]) -> list[str]:
    """The findings for a person, and what they come to."""
    check = max(len(each.check) for each in found)
    said = []
    for each in found:
        said.append(f"{each.status.value:<{_WIDTH}}  {each.check:<{check}}  {printable(each.found)}")
        if each.advice is not None:
            said.append(f"{'':<{_WIDTH}}  {'':<{check}}  -> {printable(each.advice)}")
    errors, warnings = (sum(each.status is status for each in found) for status in (Status.ERROR, Status.WARNING))
    if errors or warnings:
        return [*said, f"{counted(errors, 'error')}, {counted(warnings, 'warning')}."]
    return [*said, "Nothing stands in the way."]
