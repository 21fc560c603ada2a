"""Topics: made, described, grown, configured, deleted, and found again after a restart."""

from pathlib import Path
from typing import Any

import pytest

from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import alter_configs, incremental_alter_configs
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.wire_client import WireClient

_TOPIC = 2
_SET, _APPEND = 0, 2


async def _create(client: WireClient, *topics: CreatableTopic, validate_only: bool = False) -> Any:
    return (await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics, 1000, validate_only))).topics


async def _metadata(client: WireClient, *names: str, create: bool = False) -> Any:
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    return (await client.ask(ApiKey.METADATA, MetadataRequest(topics or None, create))).topics


async def test_a_topic_is_made_and_described(client: WireClient, broker: AsyncBroker) -> None:
    (made,) = await _create(client, CreatableTopic("t", 3, 1, configs=(CreatableTopicConfig("retention.ms", "5"),)))
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 3, 1)
    assert {each.name: each.value for each in made.configs}["retention.ms"] == "5"
    (told,) = await _metadata(client, "t")
    assert told.topic_id == made.topic_id
    assert [each.leader_id for each in told.partitions] == [1, 1, 1]
    assert sorted(path.name for path in broker.data_dir.glob("t-*")) == ["t-0", "t-1", "t-2"]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (CreatableTopic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("old", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreatableTopic("o_d", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("t", 10_001, 1), ErrorCode.POLICY_VIOLATION),
        (CreatableTopic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("t", 1, 1, configs=(CreatableTopicConfig("retention", "5"),)), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("t", 1, 1, configs=(CreatableTopicConfig("retention.ms", "x"),)), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("t", 1, 1, (CreatableReplicaAssignment(0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (CreatableTopic("t", -1, -1, (CreatableReplicaAssignment(0, (2,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("t", -1, -1, (CreatableReplicaAssignment(1, (1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_a_topic_that_cannot_be_is_refused(client: WireClient, topic: CreatableTopic, error: ErrorCode) -> None:
    await _create(client, CreatableTopic("old", 1, 1), CreatableTopic("o.d", 1, 1))
    (refused,) = await _create(client, topic)
    assert refused.error_code == error
    assert refused.error_message


async def test_a_name_twice_in_one_request_and_validate_only(client: WireClient) -> None:
    (twice,) = await _create(client, CreatableTopic("t", 1, 1), CreatableTopic("t", 2, 1))
    assert twice.error_code == ErrorCode.INVALID_REQUEST
    (checked,) = await _create(client, CreatableTopic("t", -1, -1), validate_only=True)
    assert isinstance(checked, CreatableTopicResult)
    assert checked.error_code == 0
    assert (await _metadata(client, "t"))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_request_for_too_many_partitions_in_all_is_refused_as_a_whole(client: WireClient) -> None:
    refused = await _create(client, CreatableTopic("t", 6_000, 1), CreatableTopic("u", 4_001, 1), validate_only=True)
    assert [each.error_code for each in refused] == [ErrorCode.POLICY_VIOLATION] * 2
    checked = await _create(client, CreatableTopic("t", 6_000, 1), CreatableTopic("u", 4_000, 1), validate_only=True)
    assert [each.error_code for each in checked] == [0, 0]
    await _create(client, CreatableTopic("t", 1, 1), CreatableTopic("u", 1, 1))
    for count, error in ((4_002, ErrorCode.POLICY_VIOLATION), (4_001, ErrorCode.NONE)):
        topics = (CreatePartitionsTopic("t", 6_001, None), CreatePartitionsTopic("u", count, None))
        answer = await client.ask(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest(topics, 1000, True))
        assert [each.error_code for each in answer.results] == [error] * 2


async def test_the_metadata_does_not_follow_the_limit_for_messages() -> None:
    async with AsyncBroker({"message.max.bytes": "2000"}) as broker, WireClient(broker) as client:
        (made,) = await _create(client, CreatableTopic("t", 100, 1))
        assert (made.error_code, len((await _metadata(client, "t"))[0].partitions)) == (0, 100)


async def test_metadata_creates_only_when_both_sides_allow_it(client: WireClient) -> None:
    assert (await _metadata(client, "auto"))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (made,) = await _metadata(client, "auto", create=True)
    assert (made.error_code, len(made.partitions)) == (0, 1)
    assert (await _metadata(client, "not/legal", create=True))[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    async with AsyncBroker({"auto.create.topics.enable": "false"}) as strict, WireClient(strict) as other:
        assert (await _metadata(other, "auto", create=True))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_partitions_grow_and_never_shrink(client: WireClient) -> None:
    await _create(client, CreatableTopic("t", 2, 1))

    async def grow(name: str, count: int) -> int:
        request = CreatePartitionsRequest((CreatePartitionsTopic(name, count, None),), 1000, False)
        return int((await client.ask(ApiKey.CREATE_PARTITIONS, request)).results[0].error_code)

    assert await grow("t", 4) == 0
    assert len((await _metadata(client, "t"))[0].partitions) == 4
    assert await grow("t", 4) == ErrorCode.INVALID_PARTITIONS
    assert await grow("t", 3) == ErrorCode.INVALID_PARTITIONS
    assert await grow("none", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _describe(client: WireClient, kind: int, name: str) -> Any:
    request = DescribeConfigsRequest((DescribeConfigsResource(kind, name, None),), True, True)
    return (await client.ask(ApiKey.DESCRIBE_CONFIGS, request)).results[0]


async def test_settings_are_changed_bit_by_bit(client: WireClient) -> None:
    await _create(client, CreatableTopic("t", 1, 1))
    change = incremental_alter_configs.AlterableConfig

    async def alter(*changes: incremental_alter_configs.AlterableConfig, kind: int = _TOPIC, name: str = "t") -> int:
        resource = incremental_alter_configs.AlterConfigsResource(kind, name, changes)
        request = incremental_alter_configs.IncrementalAlterConfigsRequest((resource,))
        return int((await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)).responses[0].error_code)

    async def value(key: str) -> tuple[str, int]:
        found = {each.name: each for each in (await _describe(client, _TOPIC, "t")).configs}[key]
        return found.value, found.config_source

    assert await alter(change("retention.ms", 0, "7")) == 0
    assert await value("retention.ms") == ("7", 1)
    assert await alter(change("cleanup.policy", 2, "compact")) == 0
    assert await value("cleanup.policy") == ("delete,compact", 1)
    assert await alter(change("cleanup.policy", 3, "delete")) == 0
    assert await value("cleanup.policy") == ("compact", 1)
    assert await alter(change("retention.ms", 1, None)) == 0
    assert await value("retention.ms") == ("-1", 5)  # of TEST_DEFAULTS
    assert await alter(change("retention.ms", 0, "soon")) == ErrorCode.INVALID_CONFIG
    assert await alter(change("retention", 1, None)) == 0  # it is not there, as asked
    assert await alter(change("retention.ms", 0, "1"), name="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await alter(change("num.partitions", 0, "1"), kind=4, name="1") == ErrorCode.INVALID_REQUEST


async def test_the_older_way_replaces_all_settings(client: WireClient) -> None:
    config = CreatableTopicConfig
    await _create(client, CreatableTopic("t", 1, 1, configs=(config("retention.ms", "7"), config("segment.ms", "9"))))
    resource = alter_configs.AlterConfigsResource(_TOPIC, "t", (alter_configs.AlterableConfig("retention.ms", "8"),))
    await client.ask(ApiKey.ALTER_CONFIGS, alter_configs.AlterConfigsRequest((resource,)))
    own = {each.name: each.value for each in (await _describe(client, _TOPIC, "t")).configs if each.config_source == 1}
    assert own == {"retention.ms": "8"}


async def test_broker_settings_are_told_with_their_source(client: WireClient) -> None:
    configs = {each.name: each for each in (await _describe(client, 4, "1")).configs}
    assert (configs["group.initial.rebalance.delay.ms"].value, configs["num.partitions"].value) == ("0", "1")
    assert configs["group.initial.rebalance.delay.ms"].config_source == 4
    assert configs["num.partitions"].config_source == 5
    assert (await _describe(client, 4, "9")).error_code == ErrorCode.INVALID_REQUEST


async def test_topics_are_deleted_by_name_and_by_id(client: WireClient, broker: AsyncBroker) -> None:
    (one, two) = await _create(client, CreatableTopic("one", 1, 1), CreatableTopic("two", 1, 1))
    wanted = (DeleteTopicState("one"), DeleteTopicState(topic_id=two.topic_id), DeleteTopicState("three"))
    answer = await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(wanted))
    errors = [(each.name, each.error_code) for each in answer.responses]
    assert errors == [("one", 0), ("two", 0), ("three", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert await _metadata(client) == ()
    (again,) = await _create(client, CreatableTopic("one", 1, 1))
    assert again.topic_id != one.topic_id
    assert not (broker.data_dir / "two-0").exists()


async def test_topics_page_by_page(client: WireClient) -> None:
    await _create(client, CreatableTopic("a", 3, 1), CreatableTopic("b", 2, 1))
    seen, cursor = [], None
    while True:
        request = DescribeTopicPartitionsRequest((), 2, cursor)
        page = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request)
        seen += [(topic.name, each.partition_index) for topic in page.topics for each in topic.partitions]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


@pytest.mark.parametrize(("partition", "seen"), [(2, []), (99, [])])
async def test_a_cursor_outside_the_topic_reads_what_there_is(
    client: WireClient, partition: int, seen: list[int]
) -> None:
    await _create(client, CreatableTopic("a", 2, 1))
    request = DescribeTopicPartitionsRequest((), 10, Cursor("a", partition))
    page = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request)
    assert [each.partition_index for each in page.topics[0].partitions] == seen


async def test_the_cluster_has_one_broker(client: WireClient, broker: AsyncBroker) -> None:
    answer = await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest())
    assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(1, "127.0.0.1", broker.port)]
    asked = await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(endpoint_type=2))
    assert asked.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with AsyncBroker(data_dir=tmp_path) as first, WireClient(first) as client:
        (made,) = await _create(client, CreatableTopic("t", 2, 1, configs=(CreatableTopicConfig("retention.ms", "5"),)))
        await _create(client, CreatableTopic("gone", 1, 1))
        await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState("gone"),)))
    for name, content in (("stray-0", b"records"), ("unfinished-0", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(content)
    async with AsyncBroker(data_dir=tmp_path) as second, WireClient(second) as client:
        (told,) = await _metadata(client)
        assert (told.name, told.topic_id, len(told.partitions)) == ("t", made.topic_id, 2)
        assert {c.name: c.value for c in (await _describe(client, _TOPIC, "t")).configs}["retention.ms"] == "5"
        await second.node.producer_ids.ready()
        assert second.node.producer_ids.new() == 0
        assert _strays(tmp_path) == 1
        assert not (tmp_path / "unfinished-0").exists()
    async with AsyncBroker(data_dir=tmp_path) as third:
        await third.node.producer_ids.ready()
        assert third.node.producer_ids.new() == 1_000


def _contents(data_dir: Path, pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in data_dir.glob(pattern)]


def _strays(data_dir: Path) -> int:
    """Directories that belong to no topic; each must have been put aside."""
    found = [path.name for path in data_dir.glob("stray-0*")]
    assert all(name.endswith("-stray") for name in found)
    return len(found)


async def test_records_that_a_death_in_the_cleaner_has_left_in_a_swap_file_are_records(tmp_path: Path) -> None:
    """All closed segments had become one, which had not got its name yet; the active one was empty."""
    async with AsyncBroker(data_dir=tmp_path):
        pass
    folder = tmp_path / "stray-0"
    folder.mkdir()
    (folder / f"{0:020}.log.swap").write_bytes(b"records")
    (folder / f"{9:020}.log").write_bytes(b"")
    async with AsyncBroker(data_dir=tmp_path):
        assert _strays(tmp_path) == 1
    assert _contents(tmp_path, "stray-0.*-stray/*.swap") == [b"records"]


async def test_folders_that_are_no_partitions_are_left_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncBroker(data_dir=tmp_path):
        pass  # the directory is a broker's
    deleted = f"t-0.{'0a' * 16}-delete"
    files = [tmp_path / name for name in ("photos-2024/a.jpg", "backup-1/deep/x", "soon-delete/y", f"{deleted}/mine")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("mine")
    (tmp_path / deleted / f"{0:020}.log").write_bytes(b"x")
    (tmp_path / "empty-7").mkdir()
    linked = tmp_path / "elsewhere"
    linked.mkdir()
    (linked / f"{0:020}.log").write_bytes(b"records")
    (tmp_path / "link-0").symlink_to(linked)
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        (refused,) = await _create(client, CreatableTopic("backup", 2, 1))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        (made,) = await _create(client, CreatableTopic("photos", 1, 1))
        assert made.error_code == ErrorCode.NONE
        await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState("photos"),)))
    assert [file.read_text() for file in files] == ["mine"] * 4
    assert (tmp_path / "link-0").readlink() == linked
    assert not (tmp_path / deleted / f"{0:020}.log").exists()
    assert "photos-2024 is no partition's directory: left as it is" in caplog.text


async def test_the_metadata_log_is_no_topic(client: WireClient) -> None:
    (refused,) = await _create(client, CreatableTopic("__cluster_metadata", 1, 1))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    )
    (told,) = await _metadata(client, "__cluster_metadata", create=True)
    assert told.error_code != ErrorCode.NONE
    deleted = await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState("__cluster_metadata"),)))
    assert deleted.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_share_groups_topic_is_not_made_by_a_look_at_it(client: WireClient) -> None:
    asked = MetadataRequest((MetadataRequestTopic(name="__share_group_state"),), True)
    (topic,) = (await client.ask(ApiKey.METADATA, asked)).topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)


async def test_a_list_grows_no_longer_than_a_start_can_read(tmp_path: Path) -> None:
    """Two such requests had made a directory that no broker could open again."""
    key = "leader.replication.throttled.replicas"
    words = ",".join(f"{number}:1" for number in range(4_400))

    async def alter(client: WireClient, operation: int, value: str) -> Any:
        resource = AlterConfigsResource(_TOPIC, "t", (AlterableConfig(key, operation, value),))
        answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest((resource,)))
        return answer.responses[0]

    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        await _create(client, CreatableTopic("t", 1, 1))
        assert (await alter(client, _SET, words)).error_code == 0
        refused = await alter(client, _APPEND, ",".join(f"{number}:1" for number in range(10_000, 10_500)))
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "must take at most 32767 bytes" in refused.error_message
        assert (await alter(client, _APPEND, "4399:1,5000:1")).error_code == 0
    async with AsyncBroker(data_dir=tmp_path) as broker, WireClient(broker) as client:
        asked = DescribeConfigsRequest((DescribeConfigsResource(_TOPIC, "t", (key,)),))
        (config,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, asked)).results[0].configs
        assert config.value == f"{words},5000:1"
