"""`ottla groups watch`: a group's rebalances as they happen. Its coordinator is asked again and again."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    admin_config,
    print_json_line,
    say,
)
from ottla.cli.groups.changes import Change, Changes
from ottla.cli.groups.common import Group, find_group

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.client.admin.types import GroupDescription

_SHORTEST_S = 0.05


def watch(
    group: Group,
    every_s: Annotated[float, typer.Option("--every", help="Seconds between two looks.")] = 0.5,
    for_s: Annotated[float | None, typer.Option("--for", help="End after so many seconds.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show who joins and leaves a group, what a rebalance moves, and who stood still for how long, until Ctrl-C.

    It asks the coordinator every half second, so times are as exact as that, and what is shorter may not be seen.

    Example: `ottla groups watch billing --every 0.2`
    """
    from ottla import Admin

    if every_s < _SHORTEST_S:
        raise CommandError(f"--every {every_s} is too often; {_SHORTEST_S} s is the least")
    until_s = None if for_s is None else time.monotonic() + for_s
    changes, heard = Changes(), _Heard(group)
    with Admin(admin_config(bootstrap, config)) as admin:
        while True:
            found, is_heard = heard.of(admin)
            now_s = time.monotonic()
            if is_heard:
                for change in changes.seen(found, now_s):
                    _tell(change, group, as_json=as_json)
            left_s = every_s if until_s is None else min(every_s, until_s - now_s)
            if left_s <= 0:
                return
            time.sleep(left_s)


class _Heard:
    """Asks for the group. It says once that nobody answers, and once that somebody does again."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._answered = self._failing = False

    def of(self, admin: Admin) -> tuple[GroupDescription | None, bool]:
        """The group, and whether anybody has answered. Raises a fault that does not pass, or that is there at once."""
        from ottla.client.errors import ClientError

        try:
            found = find_group(admin, self._group)
        except ClientError as fault:
            if not self._answered or not (fault.retriable or isinstance(fault, TimeoutError)):
                raise
            if not self._failing:
                say(f"ottla: {fault.__cause__ or fault}; waiting for it to come back, Ctrl-C to stop")
            self._failing = True
            return None, False
        if self._failing:
            say("ottla: it is back")
        self._answered, self._failing = True, False
        return found, True


def _tell(change: Change, group: str, *, as_json: bool) -> None:
    now = datetime.now(UTC)
    if not as_json:
        print(f"{now:%H:%M:%S}.{now.microsecond // 1000:03}  {change}", flush=True)
        return
    data = asdict(change)
    data["moves"] = [
        {"partition": str(move.partition), "before": move.before, "after": move.after} for move in change.moves
    ]
    print_json_line({"at": now.isoformat(timespec="milliseconds"), "group": group, **data})
