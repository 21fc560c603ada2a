"""A pipeline of librdkafka's clients that leaves something of every kind in a broker's data directory."""

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import TopicPartition as Partition
from ottla.testing import History
from tests.recording.final import assert_good, note_logs, note_positions
from tests.recording.librdkafka import RecordingConsumer, RecordingProducer
from tests.recording.notes import uid

_GROUP = "words"


def run_pipeline(bootstrap: str) -> History:
    """Consume, transform, produce: a group, offsets in transactions, one of them aborted. Returns what was noted."""
    history = History()
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a temporary would end its requests
    for done in admin.create_topics([NewTopic("in", 1, 1), NewTopic("out", 1, 1)]).values():
        done.result(30)
    source = RecordingProducer({"bootstrap.servers": bootstrap, "compression.type": "lz4"}, history, "source")
    for number in range(50):
        source.produce("in", f"line {number}", partition=0)
    source.flush(30)
    settings = {"group.id": _GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = RecordingConsumer({"bootstrap.servers": bootstrap, **settings}, history, "pipeline in")
    consumer.subscribe(["in"])
    sink = RecordingProducer({"bootstrap.servers": bootstrap, "transactional.id": "pipeline"}, history, "pipeline out")
    sink.init_transactions(30)
    taken, commits = 0, [True, False, True]
    while taken < 50:
        messages = consumer.consume(25, 30)
        commit = commits.pop(0) if commits else True
        sink.begin_transaction()
        for message in messages:
            sink.produce("out", message.value().upper(), partition=0, source=uid("in", message.value()))
        if commit:
            position = [TopicPartition("in", 0, messages[-1].offset() + 1)]
            sink.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 30)
            sink.commit_transaction(30)
            taken = messages[-1].offset() + 1
        else:
            sink.flush(30)
            sink.abort_transaction(30)
            consumer.seek(TopicPartition("in", 0, taken))
    consumer.close()
    return history


def judge_pipeline(history: History, bootstrap: str) -> None:
    """Read back what the pipeline has left; perhaps from another broker than the one it ran on."""
    note_logs(history, bootstrap, {"in": 1, "out": 1})
    note_positions(history, bootstrap, _GROUP)
    history.drained(_GROUP, [Partition("in", 0)], read_committed=False, transforms=True)
    assert_good(history)
