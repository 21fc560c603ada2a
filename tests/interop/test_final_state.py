"""`note_final_state` reads back what confluent-kafka reads back, from our broker and from Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition, UnknownTopicOrPartitionError
from ottla.testing import History, check_history, note_final_state
from ottla.testing.history import LogRecord
from ottla.testing.history.facts import Log, Positions
from tests.recording.final import note_logs, note_positions

pytestmark = pytest.mark.interop

_COUNT = 5


def _written(servers: str, topic: str, group: str) -> None:
    """Records of every fate: plain, committed, aborted, deleted, of an open transaction; and a compacted topic."""
    base = {"bootstrap.servers": servers}
    with Admin(base) as admin:
        admin.create_topics([NewTopic(topic, 3), NewTopic(f"{topic}-c", 1, configs={"cleanup.policy": "compact"})])
        with Producer(base) as plain, Producer({**base, "transactional.id": topic}) as transactional:
            for number in range(_COUNT):
                plain.send(topic, b"plain %d" % number, partition=0)
                plain.send(f"{topic}-c", b"kept %d" % number, key=b"k")
            plain.flush()
            transactional.init_transactions()
            for commit in (True, False):
                transactional.begin_transaction()
                for number in range(_COUNT):
                    transactional.send(topic, b"%d %d" % (commit, number), partition=1)
                transactional.flush()
                (transactional.commit_transaction if commit else transactional.abort_transaction)()
            admin.delete_records({TopicPartition(topic, 0): 2})
            admin.alter_group_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(3)})


def test_v4_the_final_state_is_what_a_client_that_is_not_ours_finds(
    any_broker: str, fresh: Callable[[str], str]
) -> None:
    topic, group, config = fresh("final"), fresh("final-group"), {"bootstrap.servers": any_broker}
    _written(any_broker, topic, group)
    ours, theirs = History(), History()
    found = note_final_state(
        ours, config, [topic, f"{topic}-c"], [group], uid=lambda record: f"{record.topic}:{record.value.decode()}"
    )
    theirs_found = note_logs(theirs, any_broker, {topic: 3, f"{topic}-c": 1})
    note_positions(theirs, any_broker, group)
    assert found == {tp: tuple(records) for tp, records in theirs_found.items()}
    logs = {event.fact.tp: event.fact for event in ours.events if isinstance(event.fact, Log)}
    assert [log.compacted for log in logs.values()] == [False, False, False, True]
    assert [log.start_offset for log in logs.values()] == [2, 0, 0, 0]
    assert [record.visible for record in logs[TopicPartition(topic, 1)].records] == [True] * _COUNT + [False] * _COUNT
    judge = {event.fact.tp: event.fact for event in theirs.events if isinstance(event.fact, Log)}
    for tp, log in logs.items():
        assert (log.high_watermark, log.last_stable_offset) == (judge[tp].high_watermark, judge[tp].last_stable_offset)
    positions = [[e.fact for e in each.events if isinstance(e.fact, Positions)] for each in (ours, theirs)]
    assert positions[0] == positions[1] == [Positions(group, {TopicPartition(topic, 0): 3})]


def test_v4_an_open_transaction_is_noted_as_it_is(any_broker: str, fresh: Callable[[str], str]) -> None:
    topic, config = fresh("final-open"), {"bootstrap.servers": any_broker}
    with Admin(config) as admin:
        admin.create_topics([NewTopic(topic)])
    history = History()
    notes = history.producer("p")
    with Producer({**config, "transactional.id": topic}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        notes.began("T", topic)
        notes.sent("open", txn="T")
        notes.acknowledged("open", TopicPartition(topic, 0), producer.send(topic, b"open").result(30).offset)
        assert note_final_state(history, config, [topic], settle_s=0) == {
            TopicPartition(topic, 0): (LogRecord(0, "open", visible=False),)
        }
        assert [anomaly.name for anomaly in check_history(history)] == ["stuck-lso"]
        producer.abort_transaction()


def test_v4_what_cannot_be_read_back_is_told(any_broker: str, fresh: Callable[[str], str]) -> None:
    topic, config = fresh("final-told"), {"bootstrap.servers": any_broker}
    with pytest.raises(UnknownTopicOrPartitionError, match=topic):
        note_final_state(History(), config, [topic])
    with Producer(config) as producer:
        producer.send(topic, b"a").result(30)
    with pytest.raises(
        TimeoutError, match=rf"not read to the end within 0 s \(read_uncommitted\): {topic}-0 at 0 of 1"
    ):
        note_final_state(History(), config, [topic], timeout_s=0)
