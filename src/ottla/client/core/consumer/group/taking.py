"""Taking an assignment over: put it into the positions, then tell the user of what is new (SPEC G13, G14).

Both happen in the user's poll. The user is told also if nothing is new, as Kafka's own consumers do.
"""

from collections.abc import Callable, Iterable

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.events import PartitionsAssigned
from ottla.client.core.consumer.group.giving_up import CallbackTicket
from ottla.client.core.consumer.shared import Shared


class Taking:
    """Takes one assignment over at a time."""

    def __init__(
        self, shared: Shared, retrack: Callable[[], None], over: Callable[[Exception | None, float], None]
    ) -> None:
        """`over` is called when the user has been told, with what the user's callback raised, or None."""
        self._shared = shared
        self._retrack = retrack
        self._over = over
        self._ticket: CallbackTicket | None = None

    @property
    def is_calling(self) -> bool:
        """Whether `on_assigned` is due or running."""
        return self._ticket is not None

    def begin(self, assigned: Iterable[TopicPartition], now_s: float) -> None:
        """These partitions are this member's from now on, and no others."""
        shared = self._shared
        assigned = frozenset(assigned)
        new = assigned - shared.positions.assignment
        shared.positions.assign(sorted(assigned))
        self._retrack()
        if new:
            shared.events.add(PartitionsAssigned(tuple(sorted(new)), len(assigned)))
        if shared.subscription.on_assigned is None:
            self._over(None, now_s)
        else:
            self._ticket = CallbackTicket("partitions are assigned")
            shared.call_user(self._ticket, shared.subscription.on_assigned, sorted(new))

    def stop(self) -> None:
        """Do not call `over`. The partitions stay."""
        self._ticket = None

    def called(self, ticket: object, error: Exception | None, now_s: float) -> bool:
        """A callback has run. Returns whether it was the one that was asked for here."""
        if self._ticket is None or ticket is not self._ticket:
            return False
        self._ticket = None
        self._over(error, now_s)
        return True
