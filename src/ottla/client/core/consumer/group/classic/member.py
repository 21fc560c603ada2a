"""Who this consumer is in a classic group."""

from ottla.client.core.consumer.member import GroupMember
from ottla.client.core.consumer.shared import Shared


class ClassicMember(GroupMember):
    """The member of a generation, which the coordinator has named."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        #: The assignor that the group has chosen.
        self.protocol = ""
        self.is_leader = False
        #: Whether the group is one of the consumer protocol (KIP-848): it takes members of the classic one, too, and
        #: names no leader.
        self.is_in_mixed_group = False

    def joining(self) -> None:
        """JoinGroup is sent. Answers to earlier requests are about a generation that it ends."""
        self._eras.begin()

    def named(self, member_id: str) -> None:
        """The coordinator has given this member an id (KIP-394)."""
        self._eras.begin()
        self.member_id = member_id

    def joined(self, member_id: str, generation_id: int, protocol: str, leader: str) -> None:
        """JoinGroup was answered."""
        self.member_id = member_id
        self.protocol = protocol
        self.is_leader = member_id == leader
        self.is_in_mixed_group = not leader
        self._is_in(generation_id)

    def forgotten(self, *, keep_member_id: bool = False) -> None:
        """The group goes on without this member."""
        self._is_out()
        self.protocol = ""
        self.is_leader = False
        if not keep_member_id:
            self.member_id = ""
