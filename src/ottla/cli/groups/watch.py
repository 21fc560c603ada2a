"""`ottla groups watch`: rebalances as they happen.

Our broker writes the events of its groups to a topic, which is read. Of another broker (Apache Kafka, or ours with
`group.events.enable=false`) the coordinator is asked again and again, and what happened follows from its answers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.base.clock import SystemClock
from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    admin_config,
    print_json_line,
    printable,
    say,
)
from ottla.cli.groups.changes import Change, Changes
from ottla.cli.groups.common import Heard, check_every, find_group, refuse_other_types, until_s
from ottla.cli.groups.reading import Reader, keeps_events
from ottla.cli.groups.targets import iso_time_ms, time_ago_ms

if TYPE_CHECKING:
    from ottla import Admin

_EVERY_S = 0.5


def watch(
    groups: Annotated[list[str] | None, typer.Argument(help="The groups. Without: all of them.")] = None,
    more_groups: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="The same, as an option; may be repeated.")
    ] = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="First all that the broker kept.")] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="PT1H|TIME", help="First what has happened since."),
    ] = None,
    every_s: Annotated[
        float | None,
        typer.Option("--every", help="Do not read events: ask the coordinator every so many seconds. [default: 0.5]"),
    ] = None,
    for_s: Annotated[
        float | None, typer.Option("--for", help="End after so many seconds; with 0, once what is past is shown.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show who joins, leaves or is expelled and why, what a rebalance moves, and who stood still, until Ctrl-C.

    Ottla's broker keeps events of all groups (docs/group-events.md), and this reads them: short things are seen too,
    and times are exact. With any other broker it asks the coordinator every half second. Then name the groups; what is
    shorter than that may not be seen, and reasons are not known.

    Example: `ottla groups watch billing --since PT1H`
    """
    from ottla import Admin

    named = list(dict.fromkeys([*(groups or ()), *(more_groups or ())]))
    since_ms = _since_ms(from_beginning, since, SystemClock().now_ms())
    if every_s is not None:
        check_every(every_s)
    if every_s is not None and since_ms is not None:
        raise CommandError("--every asks what is now: leave it, or --since and --from-beginning away")
    end_s = until_s(for_s, time.monotonic())
    settings = admin_config(bootstrap, config)
    with Admin(settings) as admin:
        if every_s is None and keeps_events(admin):
            Reader(settings, named, as_json=as_json, for_s=for_s).run(admin, since_ms)
            return
        if since_ms is not None:
            raise CommandError(
                f"{_NO_EVENTS}: leave --since and --from-beginning away. If it once did, "
                "`ottla consume __ottla_group_events --from-beginning` prints them"
            )
        if not named:
            raise CommandError(_WITHOUT_NAMES if every_s is None else "--every asks about groups: name them")
        if every_s is None:
            say(f"ottla: {_NO_EVENTS}; asking the coordinator every {_EVERY_S} s instead")
        _poll(admin, named, _EVERY_S if every_s is None else every_s, end_s, as_json=as_json)


_NO_EVENTS = "this broker writes no events of groups, or this user may not read them"
_WITHOUT_NAMES = f"{_NO_EVENTS}; so name those to ask about; `ottla groups list` shows them"


def _since_ms(from_beginning: bool, since: str | None, now_ms: int) -> int | None:
    """From when on what is past is shown (ms since the epoch, or an `OffsetSpec`). None: nothing past."""
    from ottla.client.admin.types import OffsetSpec

    if since is None:
        return OffsetSpec.EARLIEST if from_beginning else None
    if from_beginning:
        raise CommandError("say --since or --from-beginning, not both")
    found = time_ago_ms(since, now_ms)
    found = iso_time_ms(since) if found is None else found
    if found is None:
        raise CommandError(
            f"--since {since!r} is neither an ISO 8601 duration, as PT1H, nor a time, as 2026-11-21T10:00"
        )
    return found


def _poll(admin: Admin, groups: Sequence[str], every_s: float, until_s: float | None, *, as_json: bool) -> None:
    """Look at the groups again and again, and say what has changed."""
    changes, heard, is_first = {group: Changes() for group in groups}, Heard(), True
    while True:
        found = heard.of(lambda: {group: find_group(admin, group) for group in groups})
        now_s = time.monotonic()
        if found is not None:
            if is_first:
                refuse_other_types(admin, [group for group, look in found.items() if look is None])
                is_first = False
            for group, look in found.items():
                for change in changes[group].seen(look, now_s):
                    _tell(change, group, as_json=as_json, is_one=len(groups) == 1)
        left_s = every_s if until_s is None else min(every_s, until_s - now_s)
        if left_s <= 0:
            return
        time.sleep(left_s)


def _tell(change: Change, group: str, *, as_json: bool, is_one: bool) -> None:
    now = datetime.now(UTC)
    if not as_json:
        about = "" if is_one else f"{group}: "
        print(f"{now:%H:%M:%S}.{now.microsecond // 1000:03}  {printable(f'{about}{change}')}", flush=True)
        return
    data = asdict(change)
    data["moves"] = [
        {"partition": str(move.partition), "before": move.before, "after": move.after} for move in change.moves
    ]
    print_json_line({"at": now.isoformat(timespec="milliseconds"), "group": group, **data})
