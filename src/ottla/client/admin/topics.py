"""Admin calls about topics, their configuration, and the cluster."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ottla.client.admin.base import AdminBase
from ottla.client.admin.types import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    PartitionDescription,
    ResourceType,
    TopicDescription,
    TopicListing,
)
from ottla.client.core.metadata import Node, TopicInfo, checked_topic
from ottla.client.core.several import several
from ottla.client.errors import IncompleteAnswerError, KafkaError, UnknownTopicOrPartitionError, raise_for
from ottla.client.net.requests import together
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

T = TypeVar("T")


class TopicCalls(AdminBase):
    """Topics, configurations, the cluster."""

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, bytes]:
        """Create topics. Returns name → topic id. Raises KafkaError of the first topic that is refused, for example
        TopicAlreadyExistsError."""
        wanted = tuple(_creatable(topic) for topic in topics)
        made: dict[str, bytes] = {}

        async def attempt() -> dict[str, bytes]:
            left = tuple(topic for topic in wanted if topic.name not in made)
            request = CreateTopicsRequest(left, self.config.request_timeout_ms, validate_only)
            answer: CreateTopicsResponse = await self._requests.ask_controller(ApiKey.CREATE_TOPICS, request)
            made.update({topic.name: topic.topic_id for topic in answer.topics if topic.error_code == ErrorCode.NONE})
            for topic in answer.topics:
                raise_for(topic.error_code, f"topic {topic.name}: {topic.error_message}")
            return made

        return await self._requests.repeat(attempt, "create_topics", timeout_ms)

    async def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Delete topics by name. Raises KafkaError of the first topic that is refused, for example
        UnknownTopicOrPartitionError."""
        states = tuple(DeleteTopicState(name=checked_topic(name)) for name in several(names, "topics"))
        gone: set[str | None] = set()

        async def attempt() -> None:
            left = tuple(state for state in states if state.name not in gone)
            request = DeleteTopicsRequest(topics=left, timeout_ms=self.config.request_timeout_ms)
            answer: DeleteTopicsResponse = await self._requests.ask_controller(ApiKey.DELETE_TOPICS, request)
            gone.update(topic.name for topic in answer.responses if topic.error_code == ErrorCode.NONE)
            for topic in answer.responses:
                raise_final(topic.error_code, f"topic {topic.name}: {topic.error_message or 'not deleted'}")

        await self._requests.repeat(attempt, "delete_topics", timeout_ms)

    async def create_partitions(self, counts: Mapping[str, int], *, timeout_ms: int | None = None) -> None:
        """Give topics more partitions: name → new total. Raises KafkaError of the first topic that is refused."""
        wanted = tuple(CreatePartitionsTopic(checked_topic(name), count, None) for name, count in counts.items())
        grown: set[str] = set()

        async def attempt() -> None:
            left = tuple(topic for topic in wanted if topic.name not in grown)
            request = CreatePartitionsRequest(left, self.config.request_timeout_ms, False)
            answer: CreatePartitionsResponse = await self._requests.ask_controller(ApiKey.CREATE_PARTITIONS, request)
            grown.update(topic.name for topic in answer.results if topic.error_code == ErrorCode.NONE)
            for topic in answer.results:
                raise_final(topic.error_code, f"topic {topic.name}: {topic.error_message or 'not changed'}")

        await self._requests.repeat(attempt, "create_partitions", timeout_ms)

    async def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """All topics, sorted by name; with `internal` also Kafka's own."""
        snapshot = await self._requests.repeat(lambda: self._cluster.look_up(None), "list_topics")
        return [
            TopicListing(name, info.topic_id, len(info.partitions), info.is_internal)
            for name, info in sorted(snapshot.topics.items())
            if internal or not info.is_internal
        ]

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Topics with their partitions. Raises UnknownTopicOrPartitionError if one does not exist."""
        wanted = several(names, "topics")

        async def attempt() -> dict[str, TopicDescription]:
            snapshot = await self._cluster.look_up(wanted)
            for name in wanted:
                if name not in snapshot.topics:
                    if name not in snapshot.topic_errors:
                        raise IncompleteAnswerError(f"the broker's answer says nothing about topic {name}")
                    raise_final(snapshot.topic_errors[name], f"topic {name}")
            return {name: _describe(snapshot.topics[name]) for name in wanted}

        return await self._requests.repeat(attempt, "describe_topics")

    async def describe_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Configurations of topics, brokers or groups, by key.

        Raises KafkaError of the first one that is refused, and RequestTimeoutError for a broker that is not there: it
        may be starting.
        """
        wanted = _by_broker((r, DescribeConfigsResource(r.type, r.name, None)) for r in resources)

        async def ask(node_id: int | None, own: list[DescribeConfigsResource]) -> DescribeConfigsResponse:
            node_id = self._cluster.least_loaded() if node_id is None else node_id
            request = DescribeConfigsRequest(tuple(own))
            answer: DescribeConfigsResponse = await self._cluster.request(node_id, ApiKey.DESCRIBE_CONFIGS, request)
            return answer

        async def attempt() -> dict[ConfigResource, dict[str, ConfigEntry]]:
            answers = await together(ask(node_id, own) for node_id, own in wanted.items())
            found = {}
            for result in [result for answer in answers for result in answer.results]:
                raise_for(result.error_code, f"{result.resource_name}: {result.error_message}")
                found[ConfigResource(ResourceType(result.resource_type), result.resource_name)] = {
                    c.name: ConfigEntry(c.name, c.value, c.read_only, c.is_sensitive, c.config_source)
                    for c in result.configs
                }
            return found

        return await self._requests.repeat(attempt, "describe_configs")

    async def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfig]], *, validate_only: bool = False
    ) -> None:
        """Change single keys of configurations (KIP-339). Raises KafkaError of the first one that is refused.

        Each broker changes its own configuration, and the controller all others. What one of them refuses may come
        after what another one has changed.
        """

        def altered(resource: ConfigResource, wanted: Iterable[AlterConfig]) -> AlterConfigsResource:
            keys = tuple(AlterableConfig(c.name, c.operation, c.value) for c in wanted)
            return AlterConfigsResource(resource.type, resource.name, keys)

        wanted = _by_broker((resource, altered(resource, each)) for resource, each in changes.items())

        async def ask(node_id: int | None, own: list[AlterConfigsResource]) -> IncrementalAlterConfigsResponse:
            request, api = IncrementalAlterConfigsRequest(tuple(own), validate_only), ApiKey.INCREMENTAL_ALTER_CONFIGS
            answer: IncrementalAlterConfigsResponse = (
                await self._requests.ask_controller(api, request)
                if node_id is None
                else await self._cluster.request(node_id, api, request)
            )
            return answer

        async def attempt() -> None:
            answers = await together(ask(node_id, own) for node_id, own in wanted.items())
            for result in [result for answer in answers for result in answer.responses]:
                raise_for(result.error_code, f"{result.resource_name}: {result.error_message}")

        await self._requests.repeat(attempt, "incremental_alter_configs")

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers."""

        async def attempt() -> ClusterDescription:
            answer: DescribeClusterResponse = await self._cluster.request_any(
                ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest()
            )
            raise_for(answer.error_code, answer.error_message)
            nodes = tuple(Node(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers)
            return ClusterDescription(answer.cluster_id, answer.controller_id, nodes)

        return await self._requests.repeat(attempt, "describe_cluster")


def raise_final(code: int, message: str) -> None:
    """Like `raise_for`, but a topic that does not exist is an error that is not retriable: the call must not wait
    for somebody to create the topic."""
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        error = UnknownTopicOrPartitionError(code, message)
        error.retriable = False
        raise error
    raise_for(code, message)


def _by_broker(resources: Iterable[tuple[ConfigResource, T]]) -> dict[int | None, list[T]]:
    """What is asked of each broker: its own configuration, of which others may refuse to tell. By None what any broker
    knows: the configurations of topics, groups, and all brokers."""
    found: dict[int | None, list[T]] = {}
    for resource, asked in resources:
        has_name = resource.type == ResourceType.BROKER and resource.name != ""
        is_of_broker = has_name or resource.type == ResourceType.BROKER_LOGGER
        found.setdefault(_broker_id(resource.name) if is_of_broker else None, []).append(asked)
    return found


def _broker_id(name: str) -> int:
    if not (name.isascii() and name.isdigit()):
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"a broker is named by its id, which is a number, not {name!r}")
    return int(name)


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = bool(topic.assignments)  # then the two numbers must not be given
    return CreatableTopic(
        checked_topic(topic.name),
        -1 if assigned else topic.num_partitions,
        -1 if assigned else topic.replication_factor,
        tuple(CreatableReplicaAssignment(p, tuple(brokers)) for p, brokers in topic.assignments.items()),
        tuple(CreatableTopicConfig(name, value) for name, value in topic.configs.items()),
    )


def _describe(info: TopicInfo) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(number, p.leader, p.leader_epoch, p.replicas, p.isr)
        for number, p in sorted(info.partitions.items())
    )
    return TopicDescription(info.name, info.topic_id, info.is_internal, partitions)
