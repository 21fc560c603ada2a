"""`ottla run`: a PySpark script with everything set that `format("ottla")` needs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.common import CommandError


def require_script(script: Path) -> None:
    """CommandError unless there is such a file."""
    if not script.is_file():
        what = "is not a file" if script.exists() else "does not exist"
        raise CommandError(f"{script} {what}; name a Python file, for example examples/wordcount.py")


def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="The pipeline, an ordinary PySpark script.")],
    master: Annotated[str | None, typer.Option("--master", help="Spark master; local[*] when nobody says.")] = None,
    remote: Annotated[
        str | None,
        typer.Option(
            "--remote", metavar="URL", help="Spark Connect: sc://HOST:PORT, or local[2] for a server of its own."
        ),
    ] = None,
    conf: Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting.")] = None,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress",
            help="One line that says how far the queries are, on a local master; at a terminal unless told otherwise.",
        ),
    ] = None,
) -> None:
    """Run a PySpark pipeline locally or on a cluster. What follows the script is the script's own.

    Sets the Python that Spark's workers use, and the settings that make Python sources and sinks fast. What --conf,
    the script, spark-defaults.conf or PYSPARK_SUBMIT_ARGS set stays as it is.

    Example: `ottla run examples/wordcount.py --bootstrap HOST:PORT --input lines --output words --checkpoint ./state`
    """
    require_script(script)
    if find_spec("pyspark") is None:
        raise CommandError("PySpark is not installed; `pip install 'ottla[spark]'` adds it")
    from ottla.spark.run import run_script

    raise typer.Exit(run_script(script, context.args, master=master, remote=remote, conf=conf or [], progress=progress))
