"""`ottla transactions watch`: open transactions as they come, hang and go, by looking again and again."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from ottla.base.clock import SystemClock
from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Config,
    admin_config,
    existing_partitions,
    print_json_line,
)
from ottla.cli.groups.common import Heard, check_every, until_s
from ottla.cli.transactions.changes import Change, Changes
from ottla.cli.transactions.repair import age_limit_ms, row_of


def watch(
    topics: Annotated[
        list[str] | None, typer.Argument(help="Topics, or TOPIC:PARTITION. Without: all, Kafka's own too.")
    ] = None,
    longer_than: Annotated[
        str,
        typer.Option(
            "--longer-than",
            metavar="DURATION",
            help="Leave out what is open for less, as PT1M. What hangs is told at once.",
        ),
    ] = "PT10S",
    every_s: Annotated[float, typer.Option("--every", help="Look every so many seconds.")] = 1.0,
    for_s: Annotated[float | None, typer.Option("--for", help="End after so many seconds.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show transactions that stay open, hang, change their state at the coordinator or end, until Ctrl-C.

    It asks the partitions' leaders and the coordinators again and again. What is open for a shorter time than between
    two looks is not seen.

    Example: `ottla transactions watch orders --longer-than PT1M`
    """
    from ottla import Admin

    changes = Changes(age_limit_ms("--longer-than", longer_than))
    check_every(every_s)
    end_s = until_s(for_s, time.monotonic())
    heard = Heard()
    with Admin(admin_config(bootstrap, config)) as admin:
        partitions = existing_partitions(admin, topics) if topics else None
        while True:
            found = heard.of(lambda: admin.open_transactions(partitions))
            for change in [] if found is None else changes.seen(found, SystemClock().now_ms()):
                _tell(change, as_json=as_json)
            left_s = every_s if end_s is None else min(every_s, end_s - time.monotonic())
            if left_s <= 0:
                return
            time.sleep(left_s)


def _tell(change: Change, *, as_json: bool) -> None:
    now = datetime.now(UTC)
    if as_json:
        told = {"at": now.isoformat(timespec="milliseconds"), "event": change.event, "age_ms": change.age_ms}
        print_json_line({**told, **row_of(change.transaction)})
    else:
        print(f"{now:%H:%M:%S}.{now.microsecond // 1000:03}  {change}", flush=True)
