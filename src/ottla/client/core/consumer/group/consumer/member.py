"""Who this consumer is in a group that speaks the consumer protocol (KIP-848)."""

from ottla.client.core.consumer.member import GroupMember
from ottla.client.core.consumer.shared import Shared
from ottla.client.core.offsets import ConsumerGroupMetadata

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
#: A static member leaves, and will be back: the group keeps its partitions for it until the session is over.
LEAVE_STATIC_EPOCH = -2


class ConsumerMember(GroupMember):
    """A member that has named itself, for its whole life; its generation is its epoch."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self.member_id = shared.member_id

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The member as its commits name it. Who is no member commits as nobody, as with partitions by hand."""
        member_id = self.member_id if self.in_generation else ""
        return ConsumerGroupMetadata(self.group_id, self.generation_id, member_id, self.group_instance_id)

    @property
    def looks_up_as(self) -> ConsumerGroupMetadata | None:
        """As itself: so it gets no offset that the owner before may still replace."""
        return self.metadata if self.in_generation else None

    @property
    def epoch(self) -> int:
        """The epoch of a heartbeat."""
        return self.generation_id if self.in_generation else JOIN_EPOCH

    @property
    def leave_epoch(self) -> int:
        """The epoch of the heartbeat that leaves when the consumer ends."""
        return LEAVE_EPOCH if self.group_instance_id is None else LEAVE_STATIC_EPOCH

    def at_epoch(self, epoch: int) -> None:
        """The coordinator has said the member's epoch. A new epoch begins a new era."""
        if epoch != self.generation_id:
            self._is_in(epoch)
            self.has_partitions()

    def forgotten(self) -> None:
        """The group goes on without this member."""
        self._is_out()
