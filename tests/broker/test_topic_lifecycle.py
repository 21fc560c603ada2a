"""Topics that are made under bad conditions, made again under an old name, or made by an unusual way."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import AsyncBroker, Broker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.records_io import produce
from tests.broker.wire_client import WireClient, batch


async def _create(client: WireClient, name: str, partitions: int) -> int:
    answer = await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((CreatableTopic(name, partitions, 1),)))
    error: int = answer.topics[0].error_code
    return error


async def _grow(client: WireClient, name: str, count: int) -> int:
    answer = await client.ask(
        ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest((CreatePartitionsTopic(name, count, None),))
    )
    error: int = answer.results[0].error_code
    return error


def _directories(data_dir: Path, topic: str) -> list[str]:
    return sorted(path.name for path in data_dir.glob(f"{topic}-*") if path.is_dir())


async def test_a_topic_whose_directories_cannot_all_be_made_is_not_made(
    broker: AsyncBroker, client: WireClient
) -> None:
    in_the_way = broker.data_dir / "t-1"
    in_the_way.touch()
    assert await _create(client, "t", 2) == ErrorCode.KAFKA_STORAGE_ERROR
    assert "t" not in broker.node.image.topics
    assert _directories(broker.data_dir, "t") == []
    in_the_way.unlink(missing_ok=True)
    assert await _create(client, "t", 2) == ErrorCode.NONE


async def test_what_an_attempt_has_left_does_not_stop_the_next_one(broker: AsyncBroker, client: WireClient) -> None:
    """The disk refused to make a partition, and then to take back what was made: there are no records, so it can go."""
    left = broker.data_dir / "t-0"
    left.mkdir()
    for name in (f"{0:020}.log", f"{0:020}.index", "partition.metadata.tmp"):
        (left / name).touch()
    (left / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    assert await _create(client, "t", 1) == ErrorCode.NONE
    assert f"{0:020}.log" in {path.name for path in left.iterdir()}


@pytest.mark.parametrize(("name", "content"), [(f"{0:020}.log", b"records"), ("notes.txt", b"")])
async def test_what_may_be_somebody_elses_stays(
    broker: AsyncBroker, client: WireClient, name: str, content: bytes
) -> None:
    somebodys = broker.data_dir / "t-0"
    somebodys.mkdir()
    (somebodys / name).write_bytes(content)
    (somebodys / f"{7:020}.log").touch()
    assert await _create(client, "t", 1) == ErrorCode.KAFKA_STORAGE_ERROR
    assert (somebodys / name).read_bytes() == content
    assert (somebodys / f"{7:020}.log").exists()


async def test_a_directory_that_cannot_be_looked_at_is_a_fault_of_the_disk(
    broker: AsyncBroker, client: WireClient
) -> None:
    in_the_way = broker.data_dir / "t-0"
    in_the_way.symlink_to(in_the_way)  # too many levels of symbolic links
    assert await _create(client, "t", 1) == ErrorCode.KAFKA_STORAGE_ERROR
    in_the_way.unlink()
    assert await _create(client, "t", 1) == ErrorCode.NONE


async def test_a_topic_grows_by_all_partitions_or_none(broker: AsyncBroker, client: WireClient) -> None:
    assert await _create(client, "t", 1) == ErrorCode.NONE
    in_the_way = broker.data_dir / "t-2"
    in_the_way.touch()
    assert await _grow(client, "t", 3) == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(broker.node.image.topics["t"].partitions) == 1
    assert _directories(broker.data_dir, "t") == ["t-0"]
    in_the_way.unlink(missing_ok=True)
    assert await _grow(client, "t", 3) == ErrorCode.NONE


@pytest.mark.parametrize("by_metadata", [True, False])
async def test_internal_topics_that_a_client_makes_are_coordinated(client: WireClient, by_metadata: bool) -> None:
    for name in ("__consumer_offsets", "__transaction_state"):
        if by_metadata:
            request = MetadataRequest((MetadataRequestTopic(name=name),), allow_auto_topic_creation=True)
            (told,) = (await client.ask(ApiKey.METADATA, request)).topics
            assert told.error_code == ErrorCode.NONE
        else:
            assert await _create(client, name, 3) == ErrorCode.NONE
    (group,) = (await client.ask(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(("g",)), 5)).groups
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Dead")
    made = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 1_000))
    assert made.error_code == ErrorCode.NONE


async def test_a_broker_killed_while_it_deletes_a_topic_leaves_none_of_its_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncBroker(data_dir=tmp_path / "first") as broker, WireClient(broker) as client:
        for name in ("gone", "stays"):
            assert await _create(client, name, 1) == ErrorCode.NONE
            await produce(client, batch(b"x"), topic=name)

        def killed_here(topics: object) -> None:
            shutil.copytree(tmp_path / "first", tmp_path / "second")

        broker.node.topics.tell(made=killed_here, deleted=killed_here)
        await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState("gone"),)))
    assert _directories(tmp_path / "second", "gone") == ["gone-0"]
    async with AsyncBroker(data_dir=tmp_path / "second") as broker, WireClient(broker) as client:
        assert list(broker.node.image.topics) == ["stays"]
        assert _directories(broker.data_dir, "gone") == []
        assert await _create(client, "gone", 1) == ErrorCode.NONE
        partition = broker.node.partitions.find("stays", 0)
        assert partition is not None
        assert partition.log.end_offset == 1
    assert "stray" not in caplog.text


def test_a_topic_of_an_old_name_keeps_nothing_of_the_old_one_also_over_kill_9() -> None:
    with Broker() as broker:
        where = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(where)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        _produce(where, 5)
        (deleted,) = admin.delete_records([TopicPartition("t", 0, 5)]).values()
        assert deleted.result().low_watermark == 5
        broker.restart()
        admin.delete_topics(["t"])["t"].result()
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        _produce(where, 2)
        assert _watermarks(where) == (0, 2)
        broker.kill()
        broker.start()
        assert _watermarks(where) == (0, 2)


def _produce(where: dict[str, str], count: int) -> None:
    producer = Producer(where)
    for number in range(count):
        producer.produce("t", str(number))
    assert producer.flush(10) == 0


def _watermarks(where: dict[str, str]) -> tuple[int, int]:
    consumer = Consumer({**where, "group.id": "watermarks"})
    low, high = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=10)
    consumer.close()
    return low, high
