"""What an administrator does about transactions that hold back readers (SPEC T14), on our broker and on Apache Kafka.

The brokers run with `hanging.UNVERIFIED`, so that transactions can be left hanging.
"""

import time

import pytest

from ottla import Admin, NotHangingError, OffsetAndMetadata, TopicPartition
from ottla.client.admin.open_transactions import WaitingGroup
from tests.client.hanging import SINCE_MS, Hanging, leave_hanging, leave_offsets_hanging
from tests.client.journeys import PATIENCE_S, fresh, make_topic, member, poll_until, read_all
from tests.recording.current import Producer


def _plain(servers: str, tp: TopicPartition, *values: bytes) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        for value in values:
            producer.send(tp.topic, value, partition=tp.partition)


def _values(servers: str, topic: str) -> list[bytes | None]:
    return [record.value for record in read_all(servers, topic)]


def _until_nothing_waits(admin: Admin, tp: TopicPartition) -> None:
    """A commit is answered when it is decided; the markers come after that."""
    until = time.monotonic() + PATIENCE_S
    while admin.who_holds([tp], groups=False)[tp].waiting_offsets:
        assert time.monotonic() < until, "its marker never came"


def t14_what_hangs_is_found_and_aborted(servers: str) -> None:
    tp = TopicPartition(make_topic(servers), 0)
    _plain(servers, tp, b"before")
    producer = leave_hanging(servers, tp, b"h1", b"h2")
    _plain(servers, tp, b"after")
    assert _values_of_stuck_reader(servers, tp) == [b"before"]
    with Admin({"bootstrap.servers": servers}) as admin:
        (found,) = admin.find_hanging_transactions([tp])
        assert found in admin.find_hanging_transactions()
        assert (found.partition, found.producer_id, found.producer_epoch) == (tp, *producer)
        assert (found.start_offset, found.since_ms, found.last_timestamp_ms) == (1, SINCE_MS, SINCE_MS + 1)
        assert (found.is_hanging, found.transactional_id, found.state, found.coordinator_epoch) == (
            True,
            None,
            None,
            -1,
        )
        assert admin.end_hanging_transaction(tp, *producer) == found
        assert admin.open_transactions([tp]) == []
        with pytest.raises(NotHangingError, match=f"producer {producer.producer_id} has no open transaction in {tp}"):
            admin.end_hanging_transaction(tp, *producer)
    assert _values(servers, tp.topic) == [b"before", b"after"]


def _values_of_stuck_reader(servers: str, tp: TopicPartition) -> list[bytes | None]:
    """All that a reader of committed records gets up to the last stable offset."""
    with member(servers, fresh("stuck"), isolation_level="read_committed") as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning([tp])
        with Admin({"bootstrap.servers": servers}) as admin:
            end = admin.who_holds([tp], groups=False)[tp].last_stable_offset
        return [each.value for each in poll_until(consumer, lambda: consumer.position(tp) >= end)]


def t14_what_hangs_can_be_committed(servers: str) -> None:
    tp = TopicPartition(make_topic(servers), 0)
    producer = leave_hanging(servers, tp, b"h1", b"h2")
    with Admin({"bootstrap.servers": servers}) as admin:
        assert admin.end_hanging_transaction(tp, *producer, commit=True).start_offset == 0
    assert _values(servers, tp.topic) == [b"h1", b"h2"]


def t14_who_holds_the_last_stable_offset_and_who_waits(servers: str) -> None:
    topic, waits, passed, reads = (make_topic(servers, 2), fresh("waits"), fresh("passed"), fresh("reads"))
    held, free = TopicPartition(topic, 0), TopicPartition(topic, 1)
    _plain(servers, held, b"before")
    _plain(servers, free, b"x")
    first = leave_hanging(servers, held, b"h1")
    transactional_id = fresh("t14-second")
    with (
        Admin({"bootstrap.servers": servers}) as admin,
        Producer({"bootstrap.servers": servers, "transactional.id": transactional_id}) as second,
        member(servers, reads, client_id="reader-1") as consumer,
    ):
        second.init_transactions()
        second.begin_transaction()
        second.send(topic, b"open", partition=0).result(PATIENCE_S)
        consumer.subscribe([topic])
        poll_until(consumer, lambda: bool(consumer.assignment()))
        admin.alter_group_offsets(waits, {held: OffsetAndMetadata(1), free: OffsetAndMetadata(0)})
        admin.alter_group_offsets(passed, {held: OffsetAndMetadata(2)})
        holds = admin.who_holds([held, free])
        hold = holds[held]
        assert (hold.last_stable_offset, hold.high_watermark, hold.waiting_offsets) == (1, 3, 2)
        assert [each.producer_id for each in hold.transactions] == [first.producer_id, hold.transactions[1].producer_id]
        assert hold.holder is not None
        assert (hold.holder, hold.holder.is_hanging) == (hold.transactions[0], True)
        ours = {each for each in hold.groups if each.group_id in (waits, passed, reads)}
        assert ours == {WaitingGroup(waits, 1, None), WaitingGroup(reads, None, "reader-1")}
        assert (holds[free].waiting_offsets, holds[free].holder, holds[free].groups) == (0, None, ())
        admin.end_hanging_transaction(held, *first)
        after = admin.who_holds([held], groups=False)[held]
        assert (after.last_stable_offset, after.groups) == (2, ())
        assert after.holder is not None
        assert (after.holder.transactional_id, after.holder.state, after.holder.is_hanging) == (
            transactional_id,
            "Ongoing",
            False,
        )
        second.commit_transaction()
        _until_nothing_waits(admin, held)


def t14_a_transaction_that_is_not_hanging_is_refused(servers: str) -> None:
    tp, transactional_id = TopicPartition(make_topic(servers), 0), fresh("t14-alive")
    settings = {"bootstrap.servers": servers, "transactional.id": transactional_id, "transaction.timeout.ms": 60_000}
    with Admin({"bootstrap.servers": servers}) as admin, Producer(settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(tp.topic, b"alive", partition=0).result(PATIENCE_S)
        (found,) = admin.open_transactions([tp])
        (described,) = admin.describe_transactions([transactional_id]).values()
        assert (found.is_hanging, found.transactional_id, found.state) == (False, transactional_id, "Ongoing")
        assert (found.timeout_ms, found.since_ms) == (60_000, described.start_ms)
        for commit in (True, False):
            with pytest.raises(NotHangingError, match=f"is not hanging: its coordinator has it as {transactional_id}"):
                admin.end_hanging_transaction(tp, found.producer_id, found.producer_epoch, commit=commit)
        producer.commit_transaction()
        _until_nothing_waits(admin, tp)
    assert _values(servers, tp.topic) == [b"alive"]


def t14_a_producer_whose_coordinator_does_not_know_the_partition(servers: str) -> None:
    tp, transactional_id = TopicPartition(make_topic(servers), 0), fresh("t14-known")
    with Admin({"bootstrap.servers": servers}) as admin:
        producer = Hanging(*admin.fence_producers([transactional_id])[transactional_id])
        leave_hanging(servers, tp, b"h", by=producer)
        (found,) = admin.find_hanging_transactions([tp])
        assert (found.transactional_id, found.state, found.timeout_ms) == (transactional_id, "Empty", None)
        epoch = producer.producer_epoch
        with pytest.raises(NotHangingError, match=f"hangs in {tp} with epoch {epoch}, not {epoch + 1}"):
            admin.end_hanging_transaction(tp, producer.producer_id, epoch + 1)
        admin.end_hanging_transaction(tp, *producer)
    assert _values(servers, tp.topic) == []


def t14_offsets_that_hang_are_found_where_nobody_looks(servers: str) -> None:
    tp, group = TopicPartition(make_topic(servers), 0), fresh("t14-offsets")
    with Admin({"bootstrap.servers": servers}) as admin:
        assert admin.list_group_offsets(group) == {}
        producer = leave_offsets_hanging(servers, group, tp, 42)
        (found,) = (each for each in admin.find_hanging_transactions() if each.producer_id == producer.producer_id)
        assert found.partition.topic == "__consumer_offsets"
        assert admin.list_group_offsets(group) == {}
        admin.end_hanging_transaction(found.partition, *producer, commit=True)
        assert admin.list_group_offsets(group)[tp].offset == 42


ALL = [
    t14_what_hangs_is_found_and_aborted,
    t14_what_hangs_can_be_committed,
    t14_who_holds_the_last_stable_offset_and_who_waits,
    t14_a_transaction_that_is_not_hanging_is_refused,
    t14_a_producer_whose_coordinator_does_not_know_the_partition,
    t14_offsets_that_hang_are_found_where_nobody_looks,
]
