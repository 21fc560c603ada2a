"""Who this consumer is in its group."""

from collections.abc import Iterator
from itertools import repeat

from ottla.client.core.consumer.era import Eras
from ottla.client.core.offsets import ConsumerGroupMetadata

NO_GENERATION = -1
NO_MEMBER_ID = ""
_FIRST_HEARTBEAT_MS = 50


class GroupMember:
    """The member's id and generation. Each change begins a new era of the membership."""

    def __init__(self, group_id: str, group_instance_id: str | None, eras: Eras) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = NO_MEMBER_ID
        self.generation_id = NO_GENERATION
        self.protocol = ""
        self.is_leader = False
        #: The member as it joined last, for `group_metadata()`. An expulsion does not clear it: the coordinator must
        #: refuse the offsets of an expelled member, and it would not refuse offsets without a member id (KIP-447).
        self.last = self.metadata
        self._eras = eras

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The member as its commits and heartbeats name it."""
        return ConsumerGroupMetadata(self.group_id, self.generation_id, self.member_id, self.group_instance_id)

    @property
    def in_generation(self) -> bool:
        """Whether this member belongs to a generation, as far as it knows."""
        return self.generation_id != NO_GENERATION

    def joining(self) -> None:
        """JoinGroup is sent. Answers to earlier requests are about a generation that it ends."""
        self._eras.begin()

    def named(self, member_id: str) -> None:
        """The coordinator has given this member an id (KIP-394)."""
        self._eras.begin()
        self.member_id = member_id

    def joined(self, member_id: str, generation_id: int, protocol: str, leader: str) -> None:
        """JoinGroup was answered."""
        self._eras.begin()
        self.member_id = member_id
        self.generation_id = generation_id
        self.protocol = protocol
        self.is_leader = member_id == leader
        self.last = self.metadata

    def forgotten(self, *, keep_member_id: bool = False) -> None:
        """The group goes on without this member."""
        self._eras.begin()
        self.generation_id = NO_GENERATION
        self.protocol = ""
        self.is_leader = False
        if not keep_member_id:
            self.member_id = NO_MEMBER_ID


def heartbeat_pauses_s(interval_ms: int) -> Iterator[float]:
    """Pauses before the heartbeats of a new generation: short at first, then `heartbeat.interval.ms`.

    Other members often join right after a group was formed. A member that hears of it early does not let them wait.
    """
    pause_ms = _FIRST_HEARTBEAT_MS
    while pause_ms < interval_ms:
        yield pause_ms / 1000
        pause_ms *= 2
    yield from repeat(interval_ms / 1000)
