"""Requests of as many elements as one may have: what is looked up and told of each is done in turns.

Counted, as in `test_canary_list`: what is left in one turn is a look at each name, a few calls.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_configs import AlterableConfig as OldConfig
from ottla.wire.messages.alter_configs import AlterConfigsRequest
from ottla.wire.messages.alter_configs import AlterConfigsResource as OldResource
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.counted_turns import CountedBroker

_NAMES = 12_000
#: Fewer, for each is a folder with its files.
_MADE = 1_200
#: Groups, of all shards together.
_READERS = 900
_CALLS_OF_EACH = 5


@pytest.fixture(scope="module")
def broker() -> Iterator[CountedBroker]:
    with CountedBroker({"offsets.topic.num.partitions": "50"}) as it:
        yield it


def _answer(broker: CountedBroker, key: ApiKey, request: Any, version: int, names: int = _NAMES) -> Any:
    """The answer to a request of so many names, made in turns."""

    async def run() -> Any:
        async with broker.client() as client:
            with broker.counted() as turns:
                answer = await client.ask(key, request, version)
        assert 0 < turns.most < names * _CALLS_OF_EACH, f"{turns.most:,} calls in one turn of {turns.whose}"
        return answer

    return asyncio.run(run())


def test_more_topics_than_may_be_made_are_refused_in_turns(broker: CountedBroker) -> None:
    """29,000 took 31 ms in one turn."""
    topics = tuple(CreatableTopic(f"t{number}", 1, 1) for number in range(_NAMES))
    answer = _answer(broker, ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics), 7)
    assert [each.name for each in answer.topics] == [each.name for each in topics]
    assert {each.error_code for each in answer.topics} == {ErrorCode.POLICY_VIOLATION}


@pytest.mark.parametrize("key", [ApiKey.CREATE_TOPICS, ApiKey.METADATA])
def test_very_many_topics_are_made_and_deleted_in_turns(broker: CountedBroker, key: ApiKey) -> None:
    """What is prepared for 6,000, and what is told of them, had taken 25 and 22 ms, each in one turn."""
    names = [f"{key.name.lower()}-{number}" for number in range(_MADE)]
    asked: Any = MetadataRequest(tuple(MetadataRequestTopic(name=name) for name in names))
    if key == ApiKey.CREATE_TOPICS:
        asked = CreateTopicsRequest(tuple(CreatableTopic(name, 1, 1) for name in names))
    made = _answer(broker, key, asked, 7, _MADE)
    assert [each.name for each in made.topics] == names
    gone = DeleteTopicsRequest(topics=tuple(map(DeleteTopicState, names)))
    deleted = _answer(broker, ApiKey.DELETE_TOPICS, gone, 6, _MADE)
    assert {each.error_code for each in deleted.responses} == {ErrorCode.NONE}


def test_very_many_topics_are_changed_described_and_grown_in_turns(broker: CountedBroker) -> None:
    """7,000 topics with three settings each had kept the loop for 12 to 20 ms in three turns, CreatePartitions of 9,000
    topics for 17. What is told of 3,000 topics with all their settings, 360,000 structs, took 16 to be freed."""
    names = [f"settings-{number}" for number in range(_MADE)]
    made = _answer(
        broker, ApiKey.CREATE_TOPICS, CreateTopicsRequest(tuple(CreatableTopic(name, 1, 1) for name in names)), 7, _MADE
    )
    assert {each.error_code for each in made.topics} == {ErrorCode.NONE}
    settings = {"retention.ms": "100000", "segment.ms": "100000", "retention.bytes": "1000000"}
    new = tuple(AlterableConfig(name, 0, value) for name, value in settings.items())
    changed = IncrementalAlterConfigsRequest(tuple(AlterConfigsResource(2, name, new) for name in names))
    answer = _answer(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, changed, 1, _MADE)
    assert [(each.resource_name, each.error_code) for each in answer.responses] == [(name, 0) for name in names]
    older = AlterConfigsRequest(tuple(OldResource(2, name, (OldConfig("segment.ms", "90000"),)) for name in names))
    answer = _answer(broker, ApiKey.ALTER_CONFIGS, older, 2, _MADE)
    assert {each.error_code for each in answer.responses} == {ErrorCode.NONE}
    asked = DescribeConfigsRequest(tuple(DescribeConfigsResource(2, name, None) for name in names), True, True)
    described = _answer(broker, ApiKey.DESCRIBE_CONFIGS, asked, 4, _MADE)
    for topic in described.results:
        own = {each.name: each.value for each in topic.configs if each.config_source == 1}
        assert own == {"segment.ms": "90000"}
    more = CreatePartitionsRequest(tuple(CreatePartitionsTopic(name, 2, None) for name in names), 60_000)
    grown = _answer(broker, ApiKey.CREATE_PARTITIONS, more, 3, _MADE)
    assert {each.error_code for each in grown.results} == {ErrorCode.NONE}
    _answer(broker, ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=tuple(map(DeleteTopicState, names))), 6, _MADE)


def test_offsets_of_a_deleted_topic_are_looked_for_in_turns(broker: CountedBroker) -> None:
    """A topic in which 10,000 groups had 10 offsets each: 88 ms, a part of those of every shard in one turn."""

    async def commit() -> None:
        parts = (OffsetCommitRequestPartition(0, 1),)
        async with broker.client() as client:
            await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((CreatableTopic("read", 1, 1),)), 7)
            for number in range(_READERS):
                topics = (OffsetCommitRequestTopic(name="read", partitions=parts),)
                error = None
                while error != ErrorCode.NONE:  # the first commit has the topic of offsets made
                    request = OffsetCommitRequest(f"reader-{number}", topics=topics)
                    answer = await client.ask(ApiKey.OFFSET_COMMIT, request, 9)
                    error = answer.topics[0].partitions[0].error_code

    asyncio.run(commit())
    gone = DeleteTopicsRequest(topics=(DeleteTopicState("read"),))
    deleted = _answer(broker, ApiKey.DELETE_TOPICS, gone, 6, _READERS)
    assert [each.error_code for each in deleted.responses] == [ErrorCode.NONE]


def test_topics_by_unknown_ids_are_told_in_turns(broker: CountedBroker) -> None:
    """14,000 took 21 ms in one turn."""
    topics = tuple(
        OffsetFetchRequestTopics(topic_id=number.to_bytes(16), partition_indexes=(0,)) for number in range(1, _NAMES)
    )
    request = OffsetFetchRequest((OffsetFetchRequestGroup("g", topics=topics),))
    answer = _answer(broker, ApiKey.OFFSET_FETCH, request, 10)
    while answer.groups[0].error_code:  # the first question has the topic of offsets made
        answer = _answer(broker, ApiKey.OFFSET_FETCH, request, 10)
    assert [each.topic_id for each in answer.groups[0].topics] == [each.topic_id for each in topics]
    assert {each.partitions[0].error_code for each in answer.groups[0].topics} == {ErrorCode.UNKNOWN_TOPIC_ID}


def test_very_many_partitions_are_elected_and_reassigned_in_turns(broker: CountedBroker) -> None:
    """One topic, and as many names: looking up each is a few calls."""
    numbers = tuple(range(_NAMES))
    for topics in ((TopicPartitions("none", numbers),), tuple(TopicPartitions(f"t{n}", (0,)) for n in numbers)):
        elected = _answer(broker, ApiKey.ELECT_LEADERS, ElectLeadersRequest(0, topics, 1_000), 2)
        found = [each.error_code for topic in elected.replica_election_results for each in topic.partition_result]
        assert found == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * _NAMES
    moves = (ReassignableTopic("none", tuple(ReassignablePartition(n, (1,)) for n in numbers)),)
    moved = _answer(
        broker, ApiKey.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest(1_000, topics=moves), 1
    )
    assert {each.error_code for each in moved.responses[0].partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    other = AlterReplicaLogDirsRequest((AlterReplicaLogDir("/x", (AlterReplicaLogDirTopic("none", numbers),)),))
    (other_told,) = _answer(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, other, 2).results
    assert [each.error_code for each in other_told.partitions] == [ErrorCode.LOG_DIR_NOT_FOUND] * _NAMES
    quorums = DescribeQuorumRequest((TopicData("none", tuple(map(PartitionData, numbers))),))
    (quorum_told,) = _answer(broker, ApiKey.DESCRIBE_QUORUM, quorums, 2).topics
    assert [each.error_code for each in quorum_told.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * _NAMES
    features = UpdateFeaturesRequest(1_000, tuple(FeatureUpdateKey(f"f{n}", 1) for n in numbers))
    told = _answer(broker, ApiKey.UPDATE_FEATURES, features, 2)
    assert told.error_code == ErrorCode.INVALID_UPDATE_VERSION
