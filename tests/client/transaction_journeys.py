"""What users do with transactions; see `journeys`."""

import re
from collections.abc import Callable

import pytest

from ottla import Admin, OffsetAndMetadata, TopicPartition, TransactionOutcome
from ottla.client.errors import CommitFailedError, FatalProducerError, IllegalStateError, ProducerFencedError
from tests.client.journeys import BLOCKING, PATIENCE_S, fresh, make_topic, poll_until, read_all
from tests.client.size_journeys import SIZES
from tests.recording.current import Consumer, Producer


def t9_only_what_was_committed_is_read(servers: str) -> None:
    topic = make_topic(servers, 2)
    with Producer({"bootstrap.servers": servers, "transactional.id": fresh("t9")}) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for partition in range(2):
                producer.send(topic, b"%d" % number, partition=partition)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    committed = [r.value for r in read_all(servers, topic, 2) if r.partition == 0]
    assert committed == [b"0", b"2", b"4"]
    # an aborted record need not have been sent at all, so only the committed ones must be there
    seen = {r.value for r in read_all(servers, topic, 2, isolation="read_uncommitted")}
    assert seen >= {b"0", b"2", b"4"}


def t9_what_was_flushed_and_aborted_is_seen_only_by_read_uncommitted(servers: str) -> None:
    topic = make_topic(servers)
    with Producer({"bootstrap.servers": servers, "transactional.id": fresh("t9")}) as producer:
        producer.init_transactions()
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"aborted")
            producer.flush(PATIENCE_S)
            _ = 1 / 0
        with producer.transaction():
            producer.send(topic, b"committed")
    assert [r.value for r in read_all(servers, topic)] == [b"committed"]
    assert [r.value for r in read_all(servers, topic, isolation="read_uncommitted")] == [b"aborted", b"committed"]


def t2_a_newer_producer_fences_the_older(servers: str) -> None:
    topic, transactional_id = make_topic(servers), fresh("t2")
    config = {"bootstrap.servers": servers, "transactional.id": transactional_id}
    with Producer(config) as old, Producer(config) as new:
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"zombie").result(PATIENCE_S)
        new.init_transactions()
        with pytest.raises(ProducerFencedError):
            old.commit_transaction()
        with pytest.raises(FatalProducerError):
            old.begin_transaction()
        with new.transaction():
            new.send(topic, b"new")
    assert [r.value for r in read_all(servers, topic)] == [b"new"]


def t1_misuse_is_told(servers: str) -> None:
    with (
        Producer({"bootstrap.servers": servers}) as plain,
        pytest.raises(IllegalStateError, match=r"transactional\.id"),
    ):
        plain.begin_transaction()
    with Producer({"bootstrap.servers": servers, "transactional.id": fresh("t1")}) as producer:
        with pytest.raises(IllegalStateError, match="init_transactions"):
            producer.send("any", b"")
        producer.init_transactions()
        with pytest.raises(IllegalStateError, match="begin_transaction"):
            producer.commit_transaction()
        with pytest.raises(IllegalStateError, match="begin_transaction"):
            producer.send("any", b"")
        producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="nothing was sent"):
            producer.detach_transaction()
        producer.commit_transaction()  # an empty one


def t11_consume_transform_produce(servers: str) -> None:
    source, target = make_topic(servers), make_topic(servers)
    tp = TopicPartition(source, 0)
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(20):
            producer.send(source, b"%d" % number)
    reading = {
        "bootstrap.servers": servers,
        "group.id": fresh("t11"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.records": 5,
        "isolation.level": "read_committed",  # so that `committed` waits for open transactions
    }

    def transform() -> int:
        records = consumer.poll(PATIENCE_S)
        for record in records:
            producer.send(target, record.value + b"!")
        offsets = {tp: OffsetAndMetadata(consumer.position(tp))}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        return len(records)

    with (
        Consumer(reading) as consumer,
        Producer({"bootstrap.servers": servers, "transactional.id": fresh("t11")}) as producer,
    ):
        consumer.subscribe([source])
        producer.init_transactions()
        producer.begin_transaction()
        assert transform() > 0
        producer.flush(PATIENCE_S)
        producer.abort_transaction()  # the work is thrown away, and done again
        assert consumer.committed([tp]) == {}
        consumer.seek(tp, 0)
        done = 0
        while done < 20:
            with producer.transaction():
                done += transform()
        assert consumer.committed([tp]) == {tp: OffsetAndMetadata(20)}
    assert [r.value for r in read_all(servers, target)] == [b"%d!" % n for n in range(20)]


def t11_a_member_of_an_old_generation_cannot_commit(servers: str) -> None:
    topic, group = make_topic(servers), fresh("t11")
    tp = TopicPartition(topic, 0)
    with (
        Producer({"bootstrap.servers": servers, "transactional.id": fresh("t11")}) as producer,
        Consumer({"bootstrap.servers": servers, "group.id": group}) as consumer,
    ):
        consumer.subscribe([topic])
        poll_until(consumer, lambda: bool(consumer.assignment()))
        stale = consumer.group_metadata()._replace(generation_id=consumer.group_metadata().generation_id - 1)
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(CommitFailedError):
            producer.send_offsets_to_transaction({tp: OffsetAndMetadata(5)}, stale)
        producer.abort_transaction()
        assert consumer.committed([tp]) == {}


def a_detached_transaction_is_ended_by_somebody_else(servers: str) -> None:
    topic, transactional_id = make_topic(servers), fresh("detached")
    config = {"bootstrap.servers": servers, "transactional.id": transactional_id}
    with Producer(config) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"row")
        handle = producer.detach_transaction()
        with pytest.raises(IllegalStateError):
            producer.send(topic, b"late")
    assert read_all(servers, topic) == []
    with Admin({"bootstrap.servers": servers}) as admin:
        listed = admin.list_transactions(re.escape(transactional_id))
        assert [(found.transactional_id, found.state) for found in listed] == [(transactional_id, "Ongoing")]
        described = admin.describe_transactions([transactional_id])[transactional_id]
        assert (described.producer_id, described.partitions) == (
            handle.producer_id,
            frozenset({TopicPartition(topic, 0)}),
        )
        assert admin.end_transaction(handle, commit=True) is TransactionOutcome.ENDED
        assert admin.end_transaction(handle, commit=True) is TransactionOutcome.ENDED
        assert admin.end_transaction(handle, commit=False) is TransactionOutcome.REFUSED
        assert [r.value for r in read_all(servers, topic)] == [b"row"]
        admin.fence_producers([transactional_id])
        assert admin.end_transaction(handle, commit=True) is TransactionOutcome.FENCED


TRANSACTIONS: list[Callable[[str], None]] = [
    t9_only_what_was_committed_is_read,
    t9_what_was_flushed_and_aborted_is_seen_only_by_read_uncommitted,
    t2_a_newer_producer_fences_the_older,
    t1_misuse_is_told,
    t11_consume_transform_produce,
    t11_a_member_of_an_old_generation_cannot_commit,
    a_detached_transaction_is_ended_by_somebody_else,
]
ALL = [*BLOCKING, *SIZES, *TRANSACTIONS]
