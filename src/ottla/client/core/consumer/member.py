"""Who this consumer is in its group."""

from ottla.client.core.consumer.events import GenerationJoined
from ottla.client.core.consumer.shared import Shared
from ottla.client.core.offsets import ConsumerGroupMetadata

NO_GENERATION = -1


class GroupMember:
    """The member's id and generation. Each change begins a new era of the membership.

    In a group of the consumer protocol (KIP-848) the generation is the member's epoch.
    """

    def __init__(self, shared: Shared) -> None:
        self.group_id = shared.group_id
        self.group_instance_id = shared.config.group_instance_id
        self.member_id = ""
        self.generation_id = NO_GENERATION
        #: The member as it was given its partitions last, for `group_metadata()`. An expulsion does not clear it: the
        #: coordinator must refuse the offsets of an expelled member, and it would not refuse offsets without a member
        #: id (KIP-447).
        self.last = self.metadata
        self._eras = shared.eras
        self._events = shared.events

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The member as its commits name it."""
        return ConsumerGroupMetadata(self.group_id, self.generation_id, self.member_id, self.group_instance_id)

    @property
    def in_generation(self) -> bool:
        """Whether this member belongs to a generation, as far as it knows."""
        return self.generation_id != NO_GENERATION

    @property
    def looks_up_as(self) -> ConsumerGroupMetadata | None:
        """As whom the member asks for committed offsets; None where the coordinator does not ask who asks."""
        return None

    def _is_in(self, generation_id: int) -> None:
        self._eras.begin()
        self.generation_id = generation_id
        self._events.add(GenerationJoined(self.member_id, generation_id))

    def has_partitions(self) -> None:
        """What the member has now is its part in this generation."""
        self.last = self.metadata

    def _is_out(self) -> None:
        self._eras.begin()
        self.generation_id = NO_GENERATION
