"""A pipeline of librdkafka's clients that leaves something of every kind in a broker's data directory."""

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def run_pipeline(bootstrap: str) -> None:
    """Consume, transform, produce: a group, offsets in transactions, one of them aborted."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a temporary would end its requests
    for done in admin.create_topics([NewTopic("in", 1, 1), NewTopic("out", 1, 1)]).values():
        done.result(30)
    source = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
    for number in range(50):
        source.produce("in", f"line {number}", partition=0)
    source.flush(30)
    settings = {"group.id": "words", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe(["in"])
    sink = Producer({"bootstrap.servers": bootstrap, "transactional.id": "pipeline"})
    sink.init_transactions(30)
    taken, commits = 0, [True, False, True]
    while taken < 50:
        messages = consumer.consume(25, 30)
        commit = commits.pop(0) if commits else True
        sink.begin_transaction()
        for message in messages:
            sink.produce("out", message.value().upper(), partition=0)
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
