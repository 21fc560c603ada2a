"""Giving partitions up: commit, tell the user, and take them out of the assignment, in this order (SPEC G13, G14).

The commit may go on between two polls. The other steps happen in the user's poll, or in the call that leaves, when
nobody takes records. So no record is returned after the commit, and the user knows of each partition when it goes.
"""

from collections.abc import Callable, Iterable
from enum import Enum

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.commits import Commits
from ottla.client.core.consumer.events import PartitionsLost, PartitionsRevoked
from ottla.client.core.consumer.member import GroupMember
from ottla.client.core.consumer.shared import Shared


class Step(Enum):
    """The step that was reached."""

    IDLE = "idle"
    COMMITTING = "committing"
    #: Waits for the user's next poll.
    WAITING = "waiting"
    #: The user's callback is due or running.
    CALLING = "calling"


class CallbackTicket:
    """Comes back when the user's callback has run. Two of these are never equal."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what


class GivingUp:
    """Gives up one set of partitions at a time; `step` says how far it is."""

    def __init__(
        self,
        shared: Shared,
        member: GroupMember,
        commits: Commits,
        over: Callable[[Exception | None, float], None],
    ) -> None:
        """`over` is called when the partitions have gone, with what the user's callback raised, or None."""
        self._shared = shared
        self._member = member
        self._commits = commits
        self._over = over
        self.step = Step.IDLE
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._ticket: CallbackTicket | None = None
        self._number = 0
        #: Whether the user is told that they are lost.
        self._are_lost = False

    @property
    def is_calling(self) -> bool:
        """Whether the user's callback is due or running."""
        return self.step is Step.CALLING

    @property
    def is_running(self) -> bool:
        """Whether partitions are being given up."""
        return self.step is not Step.IDLE

    def stop(self) -> None:
        """Stop, and do not call `over`."""
        self._end(gone=self.is_calling)

    def begin(self, partitions: Iterable[TopicPartition], now_s: float, *, leaving: bool = False) -> None:
        """Give these up. This ends what was begun before: if its callback was asked for, its partitions go, else stay.

        If the member is `leaving`, this waits for commits even if there is nothing to give up.
        """
        self._end(gone=self.is_calling)
        self._partitions = frozenset(partitions) & self._shared.positions.assignment
        if leaving or (self._partitions and self._member.in_generation):
            self.step = Step.COMMITTING
            self._number += 1
            number = self._number
            commit = self._commits.before_leaving if leaving else self._commits.before_giving_up
            commit(lambda now_s: self._committed(number), now_s)
        elif not self._partitions:
            self._over(None, now_s)
        else:
            self.step = Step.WAITING

    def _committed(self, number: int) -> None:
        if self.step is Step.COMMITTING and number == self._number:
            self.step = Step.WAITING

    def advance(self, now_s: float) -> None:
        """Tell the user, when the commit is over. To be called only while nobody takes records."""
        if self.step is not Step.WAITING:
            return
        subscription = self._shared.subscription
        function = subscription.on_revoked
        self._are_lost = not self._member.in_generation
        if self._are_lost:
            function = subscription.on_lost or subscription.on_revoked
        if function is not None and self._partitions:
            self.step = Step.CALLING
            self._ticket = CallbackTicket("partitions are given up")
            self._shared.call_user(self._ticket, function, sorted(self._partitions))
        else:
            self._end(gone=True)
            self._over(None, now_s)

    def called(self, ticket: object, error: Exception | None, now_s: float) -> bool:
        """A callback has run. Returns whether it was the one that was asked for here."""
        if ticket is not self._ticket or self.step is not Step.CALLING:
            return False
        self._end(gone=True)
        self._over(error, now_s)
        return True

    def _end(self, *, gone: bool) -> None:
        if gone:
            positions = self._shared.positions
            if self._partitions:
                event = PartitionsLost if self._are_lost else PartitionsRevoked
                self._shared.events.add(event(tuple(sorted(self._partitions))))
            positions.assign(sorted(positions.assignment - self._partitions))
        self.step = Step.IDLE
        self._partitions = frozenset()
        self._ticket = None
