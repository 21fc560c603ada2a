"""What the client knows of the cluster: brokers, topics, leaders. It is immutable: each answer makes a new snapshot.

An old answer must not replace newer knowledge (KIP-320). If an answer has a lower leader epoch for a partition than the
snapshot, the snapshot keeps what it has. The exception is a new topic id: then the topic was deleted and created again.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.base.topic_names import MAX_TOPIC_NAME_LENGTH, topic_name_problem
from ottla.base.types import TopicPartition
from ottla.client.errors import KafkaError, code_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_TOPIC_ID = bytes(16)
NO_LEADER = -1
UNKNOWN_EPOCH = -1


def checked_topic(name: object) -> str:
    """`name`, if a topic can have this name. Raises TypeError, or KafkaError with INVALID_TOPIC_EXCEPTION.

    Such a name must not be sent to a broker: if it is longer than the protocol allows, the broker closes the
    connection, and the other topics in the request get no answer either.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a topic must be a str, not {name!r}")
    problem = topic_name_problem(name)
    if problem is not None:
        if len(name) > MAX_TOPIC_NAME_LENGTH:
            problem = problem.replace(name, f"{name[:MAX_TOPIC_NAME_LENGTH]}…")
        raise KafkaError.of(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    return name


class Node(NamedTuple):
    """A broker: its id and its address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """One partition: its leader (-1 when there is none), the leader epoch, the replicas, and the replicas in sync."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


class TopicInfo(NamedTuple):
    """One topic, as a broker describes it. `partitions` is by partition number."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionInfo]
    is_internal: bool = False


#: How long metadata may be out of date, at least. A broker that is cut off from its controller goes on telling what it
#: knows; three times `broker.session.timeout.ms` (9 s) and some more.
_OLD_METADATA_S: Final = 30.0


def old_metadata_s(request_timeout_ms: float) -> float:
    """For how long metadata may be out of date, and a leader that was deposed may not know of it."""
    return max(request_timeout_ms / 1000, _OLD_METADATA_S)


class ClusterSnapshot(NamedTuple):
    """All that is known at one moment. `topic_errors` has the error codes of topics that brokers did not describe."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: Mapping[int, Node] = {}
    topics: Mapping[str, TopicInfo] = {}
    names_by_id: Mapping[bytes, str] = {}
    topic_errors: Mapping[str, ErrorCode] = {}

    def has(self, tp: TopicPartition) -> bool:
        """Whether the snapshot knows the partition."""
        topic = self.topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def leader(self, tp: TopicPartition) -> int:
        """Node id of the partition's leader; -1 if the leader or its address is not known."""
        topic = self.topics.get(tp.topic)
        info = topic.partitions.get(tp.partition) if topic is not None else None
        return info.leader if info is not None and info.leader in self.nodes else NO_LEADER

    def leader_epoch(self, tp: TopicPartition) -> int:
        """The partition's leader epoch; -1 if it is not known."""
        topic = self.topics.get(tp.topic)
        info = topic.partitions.get(tp.partition) if topic is not None else None
        return info.leader_epoch if info is not None else UNKNOWN_EPOCH

    def leadership(self, tp: TopicPartition) -> tuple[int, int]:
        """The partition's leader and its epoch: they differ if a later snapshot has news of the partition."""
        return self.leader(tp), self.leader_epoch(tp)

    def may_have_another_leader(self, tp: TopicPartition) -> bool:
        """Whether the partition has more than one replica, so that its leader may have been deposed."""
        topic = self.topics.get(tp.topic)
        info = topic.partitions.get(tp.partition) if topic is not None else None
        return info is not None and len(info.replicas) > 1

    def topic_id(self, topic: str) -> bytes:
        """The topic's id; zeros if it is not known."""
        info = self.topics.get(topic)
        return info.topic_id if info is not None else NO_TOPIC_ID

    def topic_name(self, name: str | None, topic_id: bytes) -> str:
        """The topic's name, for an answer that has a name or, in newer versions, only an id; "" if it is not known."""
        return name or self.names_by_id.get(topic_id, "")

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; 0 if the topic is not known."""
        info = self.topics.get(topic)
        return len(info.partitions) if info is not None else 0

    def updated(self, response: MetadataResponse, *, whole: bool) -> "ClusterSnapshot":
        """This snapshot after `response`. `whole` if the response describes every topic: other topics are gone then."""
        topics = {} if whole else dict(self.topics)
        errors: dict[str, ErrorCode] = {} if whole else dict(self.topic_errors)
        for answered in response.topics:
            name = answered.name or self.names_by_id.get(answered.topic_id)
            if name is None:
                continue
            if answered.error_code == ErrorCode.NONE:
                topics[name] = _topic(name, answered, self.topics.get(name))
                errors.pop(name, None)
            else:
                errors[name] = code_of(answered.error_code)
                if errors[name] in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                    topics.pop(name, None)
        return ClusterSnapshot(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            nodes={b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers},
            topics=topics,
            names_by_id={info.topic_id: name for name, info in topics.items() if info.topic_id != NO_TOPIC_ID},
            topic_errors=errors,
        )

    def with_leader(self, tp: TopicPartition, leader: int, epoch: int, nodes: Iterable[Node]) -> "ClusterSnapshot":
        """This snapshot after an answer that names a leader (KIP-951); unchanged if the leader epoch is not newer."""
        topic = self.topics.get(tp.topic)
        known = topic.partitions.get(tp.partition) if topic is not None else None
        if topic is None or known is None or epoch <= known.leader_epoch:
            return self
        partitions = {**topic.partitions, tp.partition: known._replace(leader=leader, leader_epoch=epoch)}
        return self._replace(
            nodes={**self.nodes, **{node.node_id: node for node in nodes}},
            topics={**self.topics, tp.topic: topic._replace(partitions=partitions)},
        )

    def without(self, topics: Iterable[str]) -> "ClusterSnapshot":
        """This snapshot without `topics` and their errors."""
        gone = set(topics)
        kept = {name: info for name, info in self.topics.items() if name not in gone}
        return self._replace(
            topics=kept,
            names_by_id={info.topic_id: name for name, info in kept.items()},
            topic_errors={name: code for name, code in self.topic_errors.items() if name not in gone},
        )


def _topic(name: str, answered: MetadataResponseTopic, known: TopicInfo | None) -> TopicInfo:
    same = known is not None and known.topic_id == answered.topic_id
    partitions: dict[int, PartitionInfo] = {}
    for p in answered.partitions:
        fresh = PartitionInfo(p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
        old = known.partitions.get(p.partition_index) if known is not None and same else None
        stale = old is not None and old.leader_epoch > fresh.leader_epoch
        partitions[p.partition_index] = old if old is not None and stale else fresh
    return TopicInfo(name, answered.topic_id, partitions, bool(answered.is_internal))
