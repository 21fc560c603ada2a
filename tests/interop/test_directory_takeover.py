"""Apache Kafka's partition directories are ours and ours are Apache Kafka's (DESIGN, idea 3).

The history of the pipeline is judged across the takeover. The other tests have none: one writes batches into files,
where no client sends them, and one is a talk of a group that reads no record.
"""

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from ottla.base.steps import result_of
from ottla.broker.runtime.coordinators import apply_to_group
from ottla.broker.runtime.shard import logged
from ottla.broker.storage import DirectoryStorage
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.shard import GroupShard
from ottla.log.config import LogConfig
from ottla.log.partition import PartitionLog
from ottla.log.replay import replay
from ottla.testing import Broker
from ottla.wire.apis import ApiKey
from ottla.wire.hashing import coordinator_partition
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, Member
from ottla.wire.records import decode_batch
from ottla.wire.special_timestamp import SpecialTimestamp
from tests.coordinator.group.consumer.conversation import Conversation
from tests.coordinator.group.talking import SETTINGS
from tests.interop.apache import ApacheKafka, run_tool
from tests.interop.pipeline import judge_pipeline, run_pipeline
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import TP, append, append_in_transaction, committed_offsets, end, every_batch, latest_epoch
from tests.recording.librdkafka import RecordingProducer

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]


def _open(kafka: ApacheKafka, *, clean: bool) -> PartitionLog:
    return PartitionLog.open(TP, DirectoryStorage(kafka.data_dir / str(TP)), LogConfig(), NOW_MS, clean=clean)


def _produce(kafka: ApacheKafka, *, transaction: str, values: list[str], commit: bool) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": transaction})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(TP.topic, value, partition=0)
    producer.flush(60)
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)
    # The answer comes before the marker is in the partition; the next initialisation waits for it.
    Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": transaction}).init_transactions(60)


def _consume(kafka: ApacheKafka, topic: str = TP.topic) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "takeover",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    while True:
        message = consumer.poll(60)
        assert message is not None, "Apache Kafka went silent"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            consumer.close()
            return values
        values.append(message.value().decode())


def _values(log: PartitionLog) -> list[str]:
    visible = set(committed_offsets(log))
    records = [record for one in every_batch(log) for record in decode_batch(one)]
    return [(record.value or b"").decode() for record in records if record.offset in visible]


@pytest.mark.slow
def test_a_partition_goes_from_apache_kafka_to_us_and_back(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(TP.topic, 1, 1, config={"message.timestamp.type": "CreateTime"})])[
            TP.topic
        ].result(60)
        _produce(kafka, transaction="a", values=["one", "two"], commit=True)
        _produce(kafka, transaction="b", values=["never"], commit=False)
        kafka.stop()

        log = _open(kafka, clean=True)
        assert _values(log) == ["one", "two"]
        kafkas_end = log.end_offset
        ids = {each.producer_id for each in log.producers.active()}
        assert len(ids) == 2
        append(log, batch(value=b"ours"))
        append(log, idempotent(0, producer_id=900))
        for producer_id, commit in ((901, True), (902, False)):
            append_in_transaction(log, 0, 2, producer_id=producer_id)
            end(log, commit=commit, producer_id=producer_id)
        expected = ["one", "two", "ours", "x", "x", "x"]
        assert _values(log) == expected
        log.close()

        kafka.start()
        assert _consume(kafka) == expected
        _produce(kafka, transaction="c", values=["three"], commit=True)
        kafka.kill9()

        log = _open(kafka, clean=False)
        assert log.findings.truncated_bytes == 0
        assert _values(log) == [*expected, "three"]
        found = log.offset_for_timestamp(SpecialTimestamp.EARLIEST)
        assert found is not None
        assert found.leader_epoch == 0
        # Apache Kafka raises the leader epoch with each start; ours wrote under the first.
        epoch = latest_epoch(log)
        assert epoch > 0
        assert kafkas_end < log.end_offset_for_epoch(0).end_offset < log.end_offset
        assert log.end_offset_for_epoch(epoch).end_offset == log.end_offset
        log.roll(NOW_MS)
        log.append(batch(value=b"last"), now_ms=NOW_MS, leader_epoch=epoch)
        log.close()

        kafka.start()
        assert _consume(kafka) == [*expected, "three", "last"]


def test_a_metadata_version_that_was_raised_here_is_that_of_the_directory(tmp_path: Path) -> None:
    """Of records that are written in the newer version, too."""

    def level(bootstrap: str) -> str:
        told = run_tool("FeatureCommand", "--bootstrap-server", bootstrap, "describe").stdout.splitlines()
        (words,) = (line.split() for line in told if "metadata.version" in line)
        return words[words.index("FinalizedVersionLevel:") + 1]

    def topics(bootstrap: str) -> set[str]:
        return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics)

    def create(bootstrap: str, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)

    with Broker(data_dir=tmp_path / "data") as broker:
        where = broker.bootstrap_servers
        assert level(where) == "4.0-IV3"
        create(where, "before")
        run_tool("FeatureCommand", "--bootstrap-server", where, "upgrade", "--feature", "metadata.version=30")
        create(where, "behind")
        broker.kill()
        broker.restart()
        assert level(where) == "4.3-IV0"
    with ApacheKafka(tmp_path) as kafka:
        assert level(kafka.bootstrap) == "4.3-IV0"
        create(kafka.bootstrap, "theirs")
        found = topics(kafka.bootstrap)
        assert found >= {"before", "behind", "theirs"}
    with Broker(data_dir=tmp_path / "data") as broker:
        assert level(broker.bootstrap_servers) == "4.3-IV0"
        assert topics(broker.bootstrap_servers) == found


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_apache_kafka_goes_on_with_the_whole_data_directory(tmp_path: Path, ending: str) -> None:
    """Topics, ids, settings, records, transactions, groups: what outgrows one machine moves as it is."""
    own = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
    with Broker({"group.initial.rebalance.delay.ms": "0", **own}, data_dir=tmp_path / "data") as broker:
        history = run_pipeline(broker.bootstrap_servers)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("kept", 3, 1, config={"retention.ms": "123456"})])["kept"].result(30)
        topic_ids = _topic_ids(admin)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "left open"}
        left_open = RecordingProducer(settings, history, "left open")
        left_open.init_transactions(30)
        left_open.begin_transaction()
        left_open.produce("out", "never", partition=0)
        left_open.flush(30)
        if ending == "killed":
            broker.kill()
        else:
            broker.stop()

    with ApacheKafka(tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        assert _topic_ids(admin) == topic_ids
        assert len(admin.list_topics(timeout=30).topics["kept"].partitions) == 3
        kept = ConfigResource(ResourceType.TOPIC, "kept")
        assert admin.describe_configs([kept])[kept].result(30)["retention.ms"].value == "123456"
        group = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "words"})
        assert group.committed([TopicPartition("in", 0)], 30)[0].offset == 50
        settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": "left open"}
        heir = RecordingProducer(settings, history, "heir")
        heir.init_transactions(60)  # aborts what was left, or read_committed readers would wait at it
        heir.begin_transaction()
        heir.produce("out", "after", partition=0)
        heir.commit_transaction(60)
        assert _consume(kafka, "out") == [f"LINE {number}" for number in range(50)] + ["after"]
        judge_pipeline(history, kafka.bootstrap)

    ottla = [sys.executable, "-m", "ottla"]
    dumped = subprocess.run(
        [*ottla, "dump-log", "--records", str(kafka.data_dir / "__cluster_metadata-0")], capture_output=True, text=True
    )
    assert dumped.returncode == 0, dumped.stderr
    assert "control: ['leader change']" in dumped.stdout
    with Broker(own, data_dir=kafka.data_dir) as broker:
        assert _topic_ids(AdminClient({"bootstrap.servers": broker.bootstrap_servers})) == topic_ids
        judge_pipeline(history, broker.bootstrap_servers)


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_g17_apache_kafka_goes_on_with_a_consumer_group_and_we_with_its_log(tmp_path: Path, ending: str) -> None:
    """Members, epochs and assignments stay: no member notices who coordinates its group."""
    own = {**SETTINGS, "offsets.topic.num.partitions": "4"}
    with Broker(own, data_dir=tmp_path / "data") as broker:
        talk = Conversation("takeover", broker.port)
        talk.join("m1")
        talk.join("m2", instance="i2")
        talk.beat("m1", 2, owned={"t": (0, 1, 2, 3)})
        talk.beat("m1", 2, owned={"t": (0, 1)})
        talk.beat("m2", 3, owned={}, instance="i2")
        talk.commit("m1", 3, 7, 0)
        talk.join("m3", regex="u~")
        talk.beat_until(lambda answer: answer.member_epoch > 4, "m3", 4, owned={})
        before = _group(talk)
        assert "Reconciling" in before[0]
        if ending == "killed":
            broker.kill()
        else:
            broker.stop()

    with ApacheKafka(tmp_path, SETTINGS) as kafka:
        talk.connect(kafka.port)
        assert _group(talk) == before
        assert not talk.beat("m1", 3, owned={"t": (0, 1)}).error_code
        talk.beat("m3", -1)
        talk.classic_join("")
        talk.classic_join("M0")
        after = talk.send(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest((talk.group_id,))).groups[0]
        talk.close()
        kafka.kill9()

    partition = coordinator_partition(talk.group_id, 4)
    found = result_of(_shard(kafka, partition).describe_consumer_group(talk.group_id))
    assert (found.group_epoch, found.assignment_epoch) == (after.group_epoch, after.assignment_epoch)
    assert sorted(_facts(each) for each in found.members) == sorted(_facts(each) for each in after.members)


def _group(talk: Conversation) -> list[str]:
    """What the broker says of the group, and of its offsets."""
    talk.transcript.clear()
    talk.describe()
    talk.fetch("m1", 3, 0, 1)
    return list(talk.transcript)


def _shard(kafka: ApacheKafka, partition: int) -> GroupShard:
    """Our coordinator of a partition that Apache Kafka has written."""
    tp = TP._replace(topic="__consumer_offsets", partition=partition)
    log = PartitionLog.open(tp, DirectoryStorage(kafka.data_dir / str(tp)), LogConfig(), NOW_MS, clean=False)
    shard = GroupShard(GroupConfig(), lambda name: None)
    for one in chain.from_iterable(map(logged, replay(log))):
        apply_to_group(shard, one, NOW_MS)
    log.close()
    return shard


def _facts(member: Member) -> tuple[object, ...]:
    """A member without its topics, whose names are in the metadata."""
    names = tuple(sorted(member.subscribed_topic_names))
    return (*member[:6], names, member.subscribed_topic_regex, member.member_type)


def _topic_ids(admin: AdminClient) -> dict[str, str]:
    names = ["in", "out", "kept"]
    found = admin.describe_topics(TopicCollection(names))
    return {name: str(found[name].result(30).topic_id) for name in names}
