"""Tells the user of `ottla consume` when no records come because no broker answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.cli.common import PATIENCE_MS, say

if TYPE_CHECKING:
    from ottla import Admin, TopicPartition

#: How long no record may come before the watch asks why.
_ASK_EVERY_S = 3.0
#: How long the answer may take.
ANSWER_WITHIN_MS = 3_000
#: A new group waits for its members anyway (group.initial.rebalance.delay.ms). After this time something else is wrong.
_MEMBERS_AFTER_S = 6.0
#: The state of a group, in either protocol, in which each member has what it was given.
_STABLE = "Stable"


class Watch:
    """Asks leaders and coordinator whether they are alive while no records come.

    It says once that they do not answer, and once that they are back. With `give_up` a lasting fault is raised: a
    command that shall end must not wait for ever. `admin` is a client of the watch's own, because the consumer's
    connection to the coordinator answers nothing else while a JoinGroup waits there.
    """

    def __init__(
        self,
        admin: Admin,
        partitions: Sequence[TopicPartition],
        *,
        group: str | None,
        give_up: bool,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._partitions = partitions
        self._group = group
        self._give_up = give_up
        self._clock_s = clock_s
        self._asked_s = self._started_s = clock_s()
        self._failing_since_s: float | None = None
        self._said_waiting = False
        #: Whether the group has given this member an assignment, even an empty one.
        self.assigned = group is None

    def on_assigned(self, _partitions: Sequence[TopicPartition]) -> None:
        """The group has given this member its partitions."""
        self.assigned = True

    def all_are_given_out(self, member_id: str, assigned: frozenset[TopicPartition]) -> bool:
        """Whether each partition has a member that has it, and nothing is to move. False while nobody answers.

        `assigned` is what this member has. The coordinator may have given it more, of which it has not heard yet.
        """
        from ottla.client.errors import ClientError

        if self._group is None:
            return True
        try:
            described = self._admin.describe_groups([self._group])[self._group]
        except ClientError:
            return False  # `heard_nothing` tells the user
        given = {member.member_id: member.partitions for member in described.members}
        heard = assigned.issuperset(given.get(member_id, ()))
        return described.state == _STABLE and heard and set().union(*given.values()).issuperset(self._partitions)

    def heard(self) -> None:
        """Records came."""
        self._asked_s = self._clock_s()
        self._is_back()

    def heard_nothing(self) -> None:
        """No records came: ask why from time to time. Raises the fault that ends the command."""
        from ottla.client.errors import ClientError

        now_s = self._clock_s()
        if now_s - self._asked_s < _ASK_EVERY_S:
            return
        try:
            self._ask()
        except ClientError as fault:
            if not fault.retriable and not isinstance(fault, TimeoutError):
                raise
            self._failed(fault, now_s)
        else:
            self._is_back()
        self._asked_s = self._clock_s()

    def _ask(self) -> None:
        from ottla.client.admin.types import OffsetSpec

        self._admin.list_offsets(dict.fromkeys(self._partitions, OffsetSpec.LATEST))
        if self._group is not None:
            self._admin.list_group_offsets(self._group)
        waits = not self.assigned and self._clock_s() - self._started_s > _MEMBERS_AFTER_S
        if waits and not self._said_waiting:
            self._said_waiting = True
            say(
                f"ottla: group {self._group} is waiting for its other members, `ottla groups describe {self._group}` "
                "shows them; Ctrl-C to stop"
            )

    def _failed(self, fault: Exception, since_s: float) -> None:
        if self._failing_since_s is None:
            self._failing_since_s = since_s
            if not self._give_up:
                say(f"ottla: {fault.__cause__ or fault}; waiting for it to come back, Ctrl-C to stop")
        if self._give_up and (self._clock_s() - self._failing_since_s) * 1000 >= PATIENCE_MS:
            raise fault

    def _is_back(self) -> None:
        if self._failing_since_s is not None and not self._give_up:
            say("ottla: it is back; reading on")
        self._failing_since_s = None
