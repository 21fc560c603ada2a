"""What the commands about groups share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ottla.cli.common import CommandError, say

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.client.admin.types import GroupDescription

Group = Annotated[str, typer.Argument(help="The group's id.")]

#: How often a watch may look; and the longest that it may sleep.
_SHORTEST_S, _LONGEST_S = 0.05, 86_400

#: A broker older than 3.7 names no types.
_KNOWN_TYPES = ("", "classic", "consumer")
#: Other types of Apache Kafka 4, whose tools are called after them.
_WITH_A_TOOL = ("share", "streams")

T = TypeVar("T")


def existing_group(admin: Admin, group: str) -> GroupDescription:
    """The group. Raises CommandError when there is none."""
    found = find_group(admin, group)
    if found is None:
        refuse_other_types(admin, [group])
        raise CommandError(f"there is no group {group}; `ottla groups list` shows which there are")
    return found


def refuse_other_types(admin: Admin, groups: Collection[str]) -> None:
    """Raises CommandError for the first of `groups` that is there, and is neither a classic nor a consumer group.

    `find_group` knows nothing of it: a broker describes share groups (KIP-932) and streams groups (KIP-1071) by other
    requests.
    """
    for each in admin.list_groups() if groups else ():
        kind = each.type.lower()
        if each.group_id in groups and kind not in _KNOWN_TYPES:
            tool = f"; Apache Kafka's kafka-{kind}-groups.sh knows it" if kind in _WITH_A_TOOL else ""
            raise CommandError(
                f"{each.group_id} is a {kind} group, and Ottla's commands only know classic and consumer groups{tool}"
            )


def find_group(admin: Admin, group: str) -> GroupDescription | None:
    """The group; None when there is none that these commands know.

    An older broker describes it as dead then, a newer one answers an error.
    """
    from ottla import KafkaError
    from ottla.wire.errors import ErrorCode

    try:
        found = admin.describe_groups([group])[group]
    except KafkaError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return found if found.exists else None


def check_every(every_s: float) -> None:
    """Of a watch's `--every`, in seconds. Raises CommandError."""
    if every_s < _SHORTEST_S:
        raise CommandError(f"--every {every_s} is too often; {_SHORTEST_S} s is the least")
    if not every_s <= _LONGEST_S:  # nor is it nan
        raise CommandError(f"--every {every_s} is not a number of seconds up to {_LONGEST_S}")


def until_s(for_s: float | None, now_s: float) -> float | None:
    """When a watch ends by its `--for`, in seconds; None: never. Raises CommandError."""
    if for_s is not None and not for_s >= 0:  # nor is it nan
        raise CommandError(f"--for {for_s} is no number of seconds; 0 looks once")
    return None if for_s is None else now_s + for_s


class Heard:
    """Asks again and again. It says once that nobody answers, and once that somebody does again."""

    def __init__(self) -> None:
        self._answered = self._failing = False

    def of(self, ask: Callable[[], T]) -> T | None:
        """The answer; None while nobody answers. Raises a fault that does not pass, or that is there at once."""
        from ottla.client.errors import ClientError

        try:
            found = ask()
        except ClientError as fault:
            if not self._answered or not (fault.retriable or isinstance(fault, TimeoutError)):
                raise
            if not self._failing:
                say(f"ottla: {fault.__cause__ or fault}; waiting for it to come back, Ctrl-C to stop")
            self._failing = True
            return None
        if self._failing:
            say("ottla: it is back")
        self._answered, self._failing = True, False
        return found
