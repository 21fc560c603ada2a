"""What Apache Kafka 4.3 answers at the edges of its APIs; held against our broker here and against itself in interop.

Each question is a coroutine that asks and returns what of the answer counts; `ANSWERS` has it beside Kafka's answer.
Texts of errors are no part of an answer: they are each broker's own.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ottla.wire.apis import ApiKey
from ottla.wire.codec import NULL_UUID
from ottla.wire.messages.alter_configs import AlterableConfig as OlderConfig
from ottla.wire.messages.alter_configs import AlterConfigsRequest
from ottla.wire.messages.alter_configs import AlterConfigsResource as OlderResource
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.describe_producers import DescribeProducersRequest
from ottla.wire.messages.describe_producers import TopicRequest as ProducersTopic
from ottla.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.sync_group import SyncGroupRequest
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.records_io import until_led
from tests.broker.wire_client import WireClient, batch

Question = Callable[[WireClient], Awaitable[Any]]

TOPIC: Final = 2
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NOT_ASKED: Final = -(2**31)
ON_CLUSTER, ON_TOPIC, ON_GROUP = 8096, 3576, 3400
_WAIT_S: Final = 60.0
SOME_ID: Final = b"\5" * 16

#: Question and Kafka's answer, by the question's name.
ANSWERS: dict[str, tuple[Question, Any]] = {}


def answered(answer: Any) -> Callable[[Question], Question]:
    def take(question: Question) -> Question:
        ANSWERS[question.__name__] = question, answer
        return question

    return take


async def prepare(client: WireClient) -> None:
    """Topics `answers-a` of three partitions and `answers-b` of two, and coordinators that are there."""
    topics = tuple(CreatableTopic(f"answers-{name}", count, 1) for name, count in (("a", 3), ("b", 2)))
    await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics, 10_000))
    for each in topics:
        await until_led(client, each.name, each.num_partitions)
    for kind in (0, 1):
        asked = FindCoordinatorRequest("", kind, ("answers",))
        while (await client.ask(ApiKey.FIND_COORDINATOR, asked)).coordinators[0].error_code != 0:
            pass
    # A coordinator that was found may still load its partition.
    described = DescribeGroupsRequest(("answers",))
    while (await client.ask(ApiKey.DESCRIBE_GROUPS, described, 5)).groups[0].error_code != 0:
        pass


# ---- DescribeConfigs and IncrementalAlterConfigs


@answered([True, 1, 0])
async def an_empty_list_of_keys_means_all(client: WireClient) -> list[Any]:
    counts = []
    for keys in ((), ("retention.ms",), ("no.such.key",)):
        asked = DescribeConfigsRequest((DescribeConfigsResource(TOPIC, "answers-a", keys),))
        (result,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, asked)).results
        counts.append(len(result.configs))
    return [counts[0] > 1, *counts[1:]]


@answered([42, 42])
async def an_unknown_kind_of_resource_spoils_the_request(client: WireClient) -> list[int]:
    resources = (DescribeConfigsResource(TOPIC, "answers-a", None), DescribeConfigsResource(64, "x", None))
    answer = await client.ask(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources))
    return [each.error_code for each in answer.results]


async def alter(client: WireClient, *operations: tuple[str, int, str | None]) -> int:
    configs = tuple(AlterableConfig(*each) for each in operations)
    asked = IncrementalAlterConfigsRequest((AlterConfigsResource(TOPIC, "answers-a", configs),))
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked)
    error: int = answer.responses[0].error_code
    return error


async def changed(client: WireClient, name: str, before: str) -> tuple[str, int]:
    """A setting that was `before`. Apache Kafka's broker hears of a change after the controller has answered."""
    asked = DescribeConfigsRequest((DescribeConfigsResource(TOPIC, "answers-a", (name,)),))
    until = time.monotonic() + _WAIT_S
    while True:
        (config,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, asked)).results[0].configs
        if config.value != before or time.monotonic() > until:
            return config.value, config.config_source


@answered([42, 42, 42, 0, 40, 40])
async def operations_that_make_no_sense(client: WireClient) -> list[int]:
    return [
        await alter(client, ("retention.ms", SET, None)),
        await alter(client, ("cleanup.policy", APPEND, None)),
        await alter(client, ("retention.ms", SET, "5"), ("retention.ms", DELETE, None)),
        await alter(client, ("no.such.key", DELETE, None)),
        await alter(client, ("no.such.key", SET, "5")),
        await alter(client, ("retention.ms", APPEND, "5")),
    ]


@answered([42, 42, 3, 40])
async def the_older_way_to_alter_settings(client: WireClient) -> list[int]:
    found = []
    for topic, text in (("answers-a", None), ("", "5"), ("answers-none", "5"), ("answers-a", "x")):
        resource = OlderResource(TOPIC, topic, (OlderConfig("retention.ms", text),))
        answer = await client.ask(ApiKey.ALTER_CONFIGS, AlterConfigsRequest((resource,), True))
        found.append(answer.responses[0].error_code)
    return found


@answered([42, 42])
async def a_resource_that_is_named_twice(client: WireClient) -> list[int]:
    resource = AlterConfigsResource(TOPIC, "answers-a", (AlterableConfig("retention.ms", SET, "5"),))
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest((resource, resource)))
    return [each.error_code for each in answer.responses]


@answered([0, ("delete,compact", 1), 0, ("", 1), 0, ("compact", 1), 40, 0, ("delete", 5)])
async def a_list_that_is_emptied_stays_empty(client: WireClient) -> list[Any]:
    name = "cleanup.policy"
    return [
        await alter(client, (name, APPEND, "compact")),
        await changed(client, name, "delete"),
        await alter(client, (name, SUBTRACT, "delete,compact")),
        await changed(client, name, "delete,compact"),
        await alter(client, (name, APPEND, "compact")),
        await changed(client, name, ""),
        await alter(client, (name, APPEND, "shred")),
        await alter(client, (name, DELETE, "")),
        await changed(client, name, "compact"),
    ]


@answered([0, 40, 0])
async def settings_in_conflict_with_each_other(client: WireClient) -> list[int]:
    return [
        await alter(client, ("max.compaction.lag.ms", SET, "5")),
        await alter(client, ("min.compaction.lag.ms", SET, "10")),
        await alter(client, ("max.compaction.lag.ms", DELETE, None), ("min.compaction.lag.ms", DELETE, None)),
    ]


# ---- Authorized operations


@answered([ON_CLUSTER, NOT_ASKED])
async def what_one_may_do_to_the_cluster(client: WireClient) -> list[int]:
    return [
        (await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(asks))).cluster_authorized_operations
        for asks in (True, False)
    ]


@answered([ON_CLUSTER, {("answers-a", 0, ON_TOPIC), ("answers-none", 3, ON_TOPIC)}])
async def what_one_may_do_to_topics(client: WireClient) -> list[Any]:
    names = tuple(MetadataRequestTopic(name=name) for name in ("answers-a", "answers-none"))
    answer = await client.ask(ApiKey.METADATA, MetadataRequest(names, False, True, True), 8)
    told = {(each.name, each.error_code, each.topic_authorized_operations) for each in answer.topics}
    return [answer.cluster_authorized_operations, told]


@answered([(0, ON_GROUP), (69, NOT_ASKED)])
async def what_one_may_do_to_a_group_that_is_not_there(client: WireClient) -> list[tuple[int, int]]:
    answers = [
        await client.ask(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(("answers-none",), True), version)
        for version in (5, 6)
    ]
    return [(each.groups[0].error_code, each.groups[0].authorized_operations) for each in answers]


# ---- Topics


@answered([{("answers-x", 42), (None, 42)}, {("answers-a", True, 42)}, {("answers-a", SOME_ID, 42)}])
async def topics_that_are_deleted_twice_at_once(client: WireClient) -> list[Any]:
    named = await client.ask(ApiKey.METADATA, MetadataRequest((MetadataRequestTopic(name="answers-a"),), False))
    topic_id = named.topics[0].topic_id

    async def delete(*topics: DeleteTopicState) -> Any:
        return (await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics, timeout_ms=5000))).responses

    twice = await delete(DeleteTopicState("answers-x"), DeleteTopicState("answers-x"), DeleteTopicState(None))
    both = await delete(DeleteTopicState("answers-a"), DeleteTopicState(None, topic_id))
    confused = await delete(DeleteTopicState("answers-a", SOME_ID))
    return [
        {(each.name, each.error_code) for each in twice},
        {(each.name, each.topic_id == topic_id, each.error_code) for each in both},
        {(each.name, each.topic_id, each.error_code) for each in confused},
    ]


async def metadata(client: WireClient, version: int, *topics: tuple[bytes, str | None]) -> list[Any]:
    asked = MetadataRequest(tuple(MetadataRequestTopic(*each) for each in topics), False)
    answer = await client.ask(ApiKey.METADATA, asked, version)
    return [(each.error_code, each.name, len(each.partitions)) for each in answer.topics]


@answered([(0, "answers-a", 3), (0, "answers-b", 2)])
async def metadata_of_a_topic_that_is_named_twice(client: WireClient) -> list[Any]:
    named = [(NULL_UUID, f"answers-{name}") for name in "aab"]
    return sorted(await metadata(client, 13, *named))


@answered([[(42, "", 0)], [(42, "", 0), (42, "answers-a", 0)], [(100, None, 0)], [(100, None, 0)]])
async def metadata_by_id(client: WireClient) -> list[Any]:
    return [
        await metadata(client, 10, (NULL_UUID, None)),
        await metadata(client, 11, (SOME_ID, None), (NULL_UUID, "answers-a")),
        await metadata(client, 12, (SOME_ID, "answers-a")),
        await metadata(client, 13, (SOME_ID, None), (NULL_UUID, "answers-a")),
    ]


@answered([(0, [(8, "1"), (4, "1")]), (0, []), (0, []), (35, []), (35, [])])
async def resources_with_settings(client: WireClient) -> list[Any]:
    asked = [(1, (4, 8)), (1, (16,)), (0, ()), (1, (4, 3)), (1, (0,))]
    answers = [
        await client.ask(ApiKey.LIST_CONFIG_RESOURCES, ListConfigResourcesRequest(types), version)
        for version, types in asked
    ]
    return [
        (each.error_code, [(found.resource_type, found.resource_name) for found in each.config_resources])
        for each in answers
    ]


async def page(client: WireClient, limit: int, cursor: Cursor | None) -> Any:
    topics = tuple(TopicRequest(f"answers-{name}") for name in ("b", "a", "none"))
    answer = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest(topics, limit, cursor))
    told = [(each.error_code, each.name[8:], len(each.partitions)) for each in answer.topics]
    return told, answer.next_cursor


@answered(
    [
        ([(0, "a", 3), (0, "b", 2), (3, "none", 0)], None),
        ([(0, "a", 1)], Cursor("answers-a", 1)),
        ([(0, "a", 2), (0, "b", 1)], Cursor("answers-b", 1)),
        ([(0, "a", 0), (0, "b", 2), (3, "none", 0)], None),
        ([(3, "none", 0)], None),
        ([(42, "b", 0), (42, "a", 0), (42, "none", 0)], None),
        ([(42, "b", 0), (42, "a", 0), (42, "none", 0)], None),
    ]
)
async def topics_page_by_page(client: WireClient) -> list[Any]:
    return [
        await page(client, 2000, None),
        await page(client, 0, None),
        await page(client, 3, Cursor("answers-a", 1)),
        await page(client, 9, Cursor("answers-a", 9)),
        await page(client, 9, Cursor("answers-none", 0)),
        await page(client, 9, Cursor("answers-a", -1)),
        await page(client, 9, Cursor("answers-0", 0)),
    ]


# ---- Groups


@answered([24, 69, (0, [("answers-a", 0, 0), ("answers-a", 99, 3), ("answers-none", 0, 3)])])
async def offsets_that_are_deleted(client: WireClient) -> list[Any]:
    committed = OffsetCommitRequestTopic(name="answers-a", partitions=(OffsetCommitRequestPartition(0, 7),))
    await client.ask(ApiKey.OFFSET_COMMIT, OffsetCommitRequest("answers-simple", topics=(committed,)), 9)
    topics = tuple(
        OffsetDeleteRequestTopic(name, tuple(OffsetDeleteRequestPartition(each) for each in numbers))
        for name, numbers in (("answers-a", (0, 99)), ("answers-none", (0,)))
    )
    found: list[Any] = []
    for group in ("", "answers-none"):
        answer = await client.ask(ApiKey.OFFSET_DELETE, OffsetDeleteRequest(group, topics[:1]))
        found.append(answer.error_code)
    answer = await client.ask(ApiKey.OFFSET_DELETE, OffsetDeleteRequest("answers-simple", topics))
    told = sorted(
        (topic.name, each.partition_index, each.error_code) for topic in answer.topics for each in topic.partitions
    )
    return [*found, (answer.error_code, told)]


def join(group: str, member_id: str = "", protocol_type: str = "consumer") -> JoinGroupRequest:
    protocols = (JoinGroupRequestProtocol("range", b"x"),)
    return JoinGroupRequest(group, 10_000, 10_000, member_id, None, protocol_type, protocols)


@answered([(79, None), (79, ""), (24, None), (25, None), (23, None)])
async def a_member_that_is_not_in_the_group_has_no_protocol(client: WireClient) -> list[Any]:
    asked = (
        (9, join("answers-join")),
        (6, join("answers-join")),
        (9, join("")),
        (7, join("answers-join", "nobody")),
        (9, join("answers-join", protocol_type="")),
    )
    answers = [await client.ask(ApiKey.JOIN_GROUP, request, version) for version, request in asked]
    return [(each.error_code, each.protocol_name) for each in answers]


@answered([[("answers-list", "classic")]] * 3 + [[]])
async def groups_by_their_type(client: WireClient) -> list[Any]:
    told = await client.ask(ApiKey.JOIN_GROUP, join("answers-list"))
    await client.ask(ApiKey.JOIN_GROUP, join("answers-list", told.member_id))
    found = []
    for types in ((), ("classic",), ("CLASSIC",), ("consumer",)):
        answer = await client.ask(ApiKey.LIST_GROUPS, ListGroupsRequest((), types))
        found.append([(each.group_id, each.group_type) for each in answer.groups if each.group_id == "answers-list"])
    return found


@answered([(0, 25), (2, 25), (0, 24), (4, 24)])
async def a_member_without_a_name(client: WireClient) -> list[tuple[int, int]]:
    answers = []
    for version, group in ((0, "answers-none"), (2, "answers-simple"), (0, "")):
        answer = await client.ask(ApiKey.LEAVE_GROUP, LeaveGroupRequest(group, (), ""), version)
        answers.append((version, answer.error_code))
    # A commit makes a group without a name, which has offsets but never members.
    committed = OffsetCommitRequestTopic(name="answers-a", partitions=(OffsetCommitRequestPartition(0, 7),))
    await client.ask(ApiKey.OFFSET_COMMIT, OffsetCommitRequest("", topics=(committed,)), 9)
    beat = await client.ask(ApiKey.HEARTBEAT, HeartbeatRequest("", 1, "nobody"), 4)
    return [*answers, (4, beat.error_code)]


@answered([25, 23])
async def a_sync_of_an_unknown_member_in_an_unlikely_protocol(client: WireClient) -> list[int]:
    asked = (SyncGroupRequest("answers-none", -1, "nobody", None, name, name) for name in ("", None))
    return [(await client.ask(ApiKey.SYNC_GROUP, each, 5)).error_code for each in asked]


@answered((100, 24))
async def commits_of_nothing_in_particular(client: WireClient) -> tuple[int, int]:
    no_topic = OffsetCommitRequestTopic(partitions=(OffsetCommitRequestPartition(0, 7),))
    plain = await client.ask(ApiKey.OFFSET_COMMIT, OffsetCommitRequest("answers-simple", topics=(no_topic,)), 10)
    topic = TxnOffsetCommitRequestTopic("answers-a", (TxnOffsetCommitRequestPartition(0, 7),))
    commit = TxnOffsetCommitRequest("answers", "", 99, 0, topics=(topic,))
    in_transaction = await client.ask(ApiKey.TXN_OFFSET_COMMIT, commit, 5)
    return (plain.topics[0].partitions[0].error_code, in_transaction.topics[0].partitions[0].error_code)


# ---- Records


@answered([35, 35, 35, [42], 3])
async def lists_of_offsets_that_are_refused(client: WireClient) -> list[Any]:
    async def ask(topic: str, version: int, *asked: tuple[int, int, int]) -> list[int]:
        topics = (ListOffsetsTopic(topic, tuple(ListOffsetsPartition(*each) for each in asked)),)
        answer = await client.ask(ApiKey.LIST_OFFSETS, ListOffsetsRequest(-1, 0, topics), version)
        return [each.error_code for each in answer.topics[0].partitions]

    return [
        *await ask("answers-a", 6, (0, -1, -3)),
        *await ask("answers-none", 6, (0, -1, -4)),
        *await ask("answers-a", 7, (0, 9, -5)),
        await ask("answers-a", 7, (0, -1, -1), (0, -1, -2)),
        *await ask("answers-none", 7, (0, -1, -3)),
    ]


@answered({("answers-none", 3), ("a/b", 17)})
async def producers_of_topics_that_are_not_there(client: WireClient) -> set[tuple[str, int]]:
    topics = tuple(ProducersTopic(name, (0,)) for name in ("answers-none", "a/b"))
    answer = await client.ask(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest(topics))
    return {(each.name, each.partitions[0].error_code) for each in answer.topics}


@answered((0, 13))
async def the_versions_of_produce(client: WireClient) -> tuple[int, int]:
    told = (await client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest("test", "1.0"))).api_keys
    return next((each.min_version, each.max_version) for each in told if each.api_key == ApiKey.PRODUCE)


@answered([3, 21])
async def a_number_of_acknowledgements_that_there_is_not(client: WireClient) -> list[int]:
    found = []
    for name in ("answers-none", "answers-b"):
        topic = TopicProduceData(name=name, partition_data=(PartitionProduceData(0, batch(b"a")),))
        answer = await client.ask(ApiKey.PRODUCE, ProduceRequest(None, 7, 5000, (topic,)), 12)
        found.append(answer.responses[0].partition_responses[0].error_code)
    return found


async def fetch(client: WireClient, partition: FetchPartition, **options: Any) -> Any:
    asked = FetchRequest(topics=(FetchTopic(topic="answers-b", partitions=(partition,)),), **options)
    return await client.ask(ApiKey.FETCH, asked, 12)


@answered([(6, -1, -1, -1), (1, -1, -1, -1), (1, -1, -1, -1), (1, -1, -1, -1)])
async def fetches_that_are_refused_tell_no_offsets(client: WireClient) -> list[Any]:
    answers = [
        await fetch(client, FetchPartition(0, partition_max_bytes=1000), replica_id=1),
        await fetch(client, FetchPartition(0, fetch_offset=99, partition_max_bytes=1000)),
        await fetch(client, FetchPartition(0, fetch_offset=-1, partition_max_bytes=1000)),
        await fetch(client, FetchPartition(0, last_fetched_epoch=9, partition_max_bytes=1000)),
    ]
    (parts) = [each.responses[0].partitions[0] for each in answers]
    return [(each.error_code, each.high_watermark, each.last_stable_offset, each.log_start_offset) for each in parts]


@answered(-1)
async def an_isolation_level_that_there_is_not(client: WireClient) -> int:
    answer = await fetch(client, FetchPartition(0, partition_max_bytes=1000), isolation_level=9)
    error: int = answer.error_code
    return error


async def produce(client: WireClient, records: bytes, transactional_id: str | None = None) -> tuple[int, int]:
    topic = TopicProduceData(name="answers-b", partition_data=(PartitionProduceData(1, records),))
    answer = await client.ask(ApiKey.PRODUCE, ProduceRequest(transactional_id, -1, 5000, (topic,)), 12)
    part = answer.responses[0].partition_responses[0]
    return part.error_code, part.log_start_offset


@answered([(53, -1), (0, 0), (45, 0), (2, -1)])
async def records_that_are_refused(client: WireClient) -> list[tuple[int, int]]:
    good = batch(b"a", producer_id=2**40, producer_epoch=0, base_sequence=0)
    return [
        await produce(client, batch(b"a", producer_id=2**40, producer_epoch=0, base_sequence=0, transactional=True)),
        await produce(client, good),
        await produce(client, batch(b"a", producer_id=2**40, producer_epoch=0, base_sequence=5)),
        await produce(client, good[:-1] + b"x"),
    ]
