"""What the metadata log says, as a state in memory. Pure; only `apply` changes it."""

from dataclasses import dataclass, field

from ottla.base.require import require
from ottla.broker.access.acls import Acl, Acls
from ottla.broker.metadata.names import INTERNAL_TOPICS, TopicNames
from ottla.broker.metadata.node_records import RegisterBrokerRecord
from ottla.broker.metadata.records import (
    LEADER_NO_CHANGE,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ottla.broker.quotas.table import QuotaTable, entity
from ottla.wire.messages.metadata import MetadataResponseTopic
from ottla.wire.producer_ids_record import ProducerIdsRecord
from ottla.wire.sasl.scram import ScramCredential

#: ConfigResource.Type of Kafka's clients.
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32


@dataclass(slots=True)
class PartitionImage:
    """One partition: who leads it, in which epoch."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    #: The ids of the directories that hold the replicas; none where that is not said.
    directories: tuple[bytes, ...] = ()


@dataclass(slots=True)
class TopicImage:
    """One topic: its id, its partitions in order, its own configuration."""

    name: str
    topic_id: bytes
    partitions: list[PartitionImage] = field(default_factory=list)
    #: How often its partitions have changed.
    changes: int = 0
    #: What Metadata has told of it, and at which number of changes: clients ask for it all day long.
    told: tuple[int, MetadataResponseTopic] | None = field(default=None, compare=False, repr=False)

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class MetadataImage:
    """Topics by name and id, configurations by resource, ACLs, users' SCRAM credentials, quotas."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.names = TopicNames()
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.acls = Acls()
        #: Users' SCRAM credentials, by Kafka's number of the mechanism and by the user's name.
        self.scram: dict[int, dict[str, ScramCredential]] = {}
        #: By mechanism, how many of them have this length of the salt and this number of iterations.
        self.scram_shapes: dict[int, dict[tuple[int, int], int]] = {}
        self.quotas = QuotaTable()
        #: Levels of the cluster's features.
        self.features: dict[str, int] = {}
        #: The owners of Apache Kafka's delegation tokens, by the token's id.
        self.tokens: dict[str, str] = {}
        #: With which epoch each broker has registered last; Apache Kafka's alone do.
        self.broker_epochs: dict[int, int] = {}
        #: How many records were applied; the same after a restart. In which version a topic was last made.
        self.version = 0
        self.created_version = 0

    def topic_id(self, name: str) -> bytes | None:
        """The id of the topic that has this name now, or None."""
        topic = self.topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_configs(self, name: str) -> dict[str, str]:
        """The topic's own settings; empty when it has none."""
        return self.own_configs(TOPIC_RESOURCE, name)

    def own_configs(self, resource_type: int, name: str) -> dict[str, str]:
        """The own settings of a resource; empty when it has none."""
        return self.configs.get((resource_type, name), {})

    def apply(self, record: MetadataRecord) -> None:
        """Take in one record of the log, in operation and at recovery alike."""
        self.version += 1
        match record:
            case PartitionChangeRecord():  # first, as most of a log may be these (`runtime.elections`)
                self._change_partition(record)
            case TopicRecord(name, topic_id):
                require(name not in self.topics, f"topic {name} exists already")
                topic = TopicImage(name, topic_id)
                self.topics[name] = topic
                self.topics_by_id[topic_id] = topic
                self.names.add(name)
                self.created_version = self.version
            case PartitionRecord():
                self._apply_partition(record)
            case ConfigRecord(resource_type, resource_name, name, value):
                configs = self.configs.setdefault((resource_type, resource_name), {})
                if value is None:
                    configs.pop(name, None)
                else:
                    configs[name] = value
            case RemoveTopicRecord(topic_id):
                removed = self.topics_by_id.pop(topic_id)
                del self.topics[removed.name]
                self.names.remove(removed.name)
                self.configs.pop((TOPIC_RESOURCE, removed.name), None)
            case AccessControlEntryRecord():
                self.acls.add(record.id, Acl(*record[1:]))
            case UserScramCredentialRecord(name, mechanism):
                self._set_scram(mechanism, name, ScramCredential(*record[2:]))
            case RemoveUserScramCredentialRecord(name, mechanism):
                self._set_scram(mechanism, name, None)
            case ClientQuotaRecord(parts, key, value, remove):
                self.quotas.set(entity(parts), key, None if remove else value)
            case RemoveAccessControlEntryRecord(acl_id):
                self.acls.remove(acl_id)
            case FeatureLevelRecord(name, level):
                self.features[name] = level
            case RegisterBrokerRecord():
                self.broker_epochs[record.broker_id] = record.broker_epoch
            case DelegationTokenRecord():
                self.tokens[record.token_id] = record.owner
            case RemoveDelegationTokenRecord(token_id):
                self.tokens.pop(token_id, None)
            case ProducerIdsRecord():
                pass  # `coordinator.producer_ids` keeps what it says

    def _set_scram(self, mechanism: int, name: str, credential: ScramCredential | None) -> None:
        users = self.scram.setdefault(mechanism, {})
        shapes = self.scram_shapes.setdefault(mechanism, {})
        before = users.pop(name, None) if credential is None else users.get(name)
        if before is not None:
            shape = len(before.salt), before.iterations
            shapes[shape] -= 1
            if not shapes[shape]:
                del shapes[shape]
        if credential is not None:
            users[name] = credential
            shape = len(credential.salt), credential.iterations
            shapes[shape] = shapes.get(shape, 0) + 1

    def _apply_partition(self, record: PartitionRecord) -> None:
        topic = self.topics_by_id[record.topic_id]
        topic.changes += 1
        partitions = topic.partitions
        image = PartitionImage(record.leader, record.leader_epoch, record.replicas, record.directories)
        number, count = record.partition_id, len(partitions)
        if number == count:
            partitions.append(image)
        else:
            require(number < count, f"partition {number} leaves a gap")
            partitions[number] = image

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self.topics_by_id[record.topic_id]
        topic.changes += 1
        image = topic.partitions[record.partition_id]
        if record.leader != LEADER_NO_CHANGE:
            image.leader = record.leader
            image.leader_epoch += 1
        if record.replicas is not None:
            image.replicas = record.replicas
        if record.directories is not None:
            image.directories = record.directories
