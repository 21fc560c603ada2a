"""What admin calls take and return."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import Node
from ottla.client.core.offsets import OffsetAndMetadata

#: The types of group that `list_groups` and `describe_groups` name.
CLASSIC = "classic"
CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 means the broker's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    #: Partition → ids of its brokers. If it is given, the two numbers above do not count.
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


class TopicListing(NamedTuple):
    """One row of `list_topics`."""

    name: str
    topic_id: bytes
    partitions: int
    is_internal: bool


class PartitionDescription(NamedTuple):
    """One partition: the leader (-1 if there is none), the leader epoch, the replicas, and the replicas in sync."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic and its partitions, sorted by number."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ClusterDescription(NamedTuple):
    """The cluster's id, the node id of its controller (-1 if it is not known), and its brokers."""

    cluster_id: str
    controller_id: int
    nodes: tuple[Node, ...]


class ResourceType(IntEnum):
    """What a configuration belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A topic, broker or group that has a configuration."""

    type: ResourceType
    name: str


class ConfigEntry(NamedTuple):
    """One key of a resource's configuration. `value` is None if it is sensitive; `source` is Kafka's number."""

    name: str
    value: str | None
    read_only: bool
    is_sensitive: bool
    source: int

    @property
    def is_default(self) -> bool:
        """Whether the key has Kafka's default value, because nobody has set it."""
        return self.source == DEFAULT_CONFIG_SOURCE


DEFAULT_CONFIG_SOURCE = 5


class AlterOperation(IntEnum):
    """What to do with one configuration key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AlterConfig(NamedTuple):
    """One change of a configuration."""

    name: str
    value: str | None = None
    operation: AlterOperation = AlterOperation.SET


class GroupListing(NamedTuple):
    """One row of `list_groups`."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class MemberDescription(NamedTuple):
    """A member of a group, and the partitions that it was given."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    #: The topics that it subscribes to, by name; and the pattern, which only a consumer group's coordinator knows.
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    #: In a consumer group (KIP-848): its epoch, and the partitions that it is to have when the group is stable.
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    #: In a consumer group: whether this member still speaks the classic protocol. None if the broker does not say.
    is_classic: bool | None = None
    #: The rack that the member says it is in (KIP-881).
    rack_id: str | None = None


class GroupDescription(NamedTuple):
    """A group: its state, the assignor in use, its members, and the node id of its coordinator.

    `type` is "classic", or "consumer" for a group of KIP-848. Such a group has an epoch, and its target assignment has
    the epoch that it was computed for.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]
    type: str = CLASSIC
    epoch: int | None = None
    target_epoch: int | None = None
    coordinator: int = -1

    @property
    def exists(self) -> bool:
        """Whether there is such a group: an older broker describes one that it does not know as dead."""
        return self.state != "Dead"


class GroupLag(NamedTuple):
    """How far a group is behind in a partition."""

    #: None if the group has committed nothing.
    committed: OffsetAndMetadata | None
    #: The first offset of the log, and the next one that will be written. None if the partition is gone.
    start_offset: int | None
    end_offset: int | None
    #: The timestamp (ms since the epoch) of the first record that the group has not read. None if there is none.
    unread_since_ms: int | None

    @property
    def offsets(self) -> int | None:
        """How many offsets are between the committed one and the end: Kafka's lag. None where one is not known."""
        if self.committed is None or self.end_offset is None:
            return None
        return self.end_offset - self.committed.offset

    def age_ms(self, now_ms: int) -> int | None:
        """For how long the first unread record has waited, by its timestamp; 0 if all is read, None if not known."""
        if self.offsets is None:
            return None
        if self.unread_since_ms is None:
            return 0 if self.offsets <= 0 else None
        return max(0, now_ms - self.unread_since_ms)


class TransactionListing(NamedTuple):
    """One row of `list_transactions`."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id: its producer, and the open transaction's start (ms since the epoch) and partitions."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: frozenset[TopicPartition]


class ProducerDescription(NamedTuple):
    """What a partition knows of a producer. `transaction_start_offset` is -1 if it has no open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


class TransactionOutcome(Enum):
    """The result of `end_transaction`. If the outcome is unknown, the call raises an exception instead."""

    #: The transaction has ended as asked, by this call or by an earlier one.
    ENDED = "ended"
    #: It had ended in the other way before, or there was no open transaction.
    REFUSED = "refused"
    #: A newer producer of this id has begun; the coordinator has aborted the transaction.
    FENCED = "fenced"
    #: The coordinator does not know the transactional id, or has forgotten it.
    FORGOTTEN = "forgotten"


class OffsetSpec(IntEnum):
    """Special values of a time for `list_offsets`. Any other number is milliseconds since the epoch."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
