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

    def missed(self, generation_id: int, leader: str) -> str:
        """What to say if a generation began without this member, between its own and that of its JoinGroup's answer.

        A group does not wait for ever for a static member, but counts on it until its session is over (KIP-345). Its
        leader then divides by the last JoinGroup that came from the member, and so may give to others at once what a
        cooperative member was given since, and has kept. Epochs of a mixed group, which nobody leads, tell nothing.
        """
        is_waited_for = self.group_instance_id is None or not leader or not self.in_generation
        if is_waited_for or generation_id <= self.generation_id + 1:
            return ""
        return f"it is in generation {self.generation_id} of {generation_id}, and at least one was without it"

    def forgotten(self, *, keep_member_id: bool = False) -> None:
        """The group goes on without this member."""
        self._is_out()
        self.protocol = ""
        self.is_leader = False
        if not keep_member_id:
            self.member_id = ""
