"""The recorders note what happened: a good history has no anomaly, and one in which a fault is put by hand has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import OffsetAndMetadata, TopicPartition
from ottla.testing import Broker, History, check_history
from ottla.testing.history import Event, Fact
from ottla.testing.history.facts import (
    Acknowledged,
    Assigned,
    Committed,
    Ended,
    Ending,
    Log,
    OffsetsSent,
    Polled,
    Positions,
    Sent,
)
from tests.recording import librdkafka, ours
from tests.recording.final import note_logs, note_positions
from tests.recording.notes import uid

pytestmark = pytest.mark.interop

_WAIT_S = 30.0
_COUNT = 20


def _settings(bootstrap: str, group: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }


def _with_ours(bootstrap: str, history: History) -> None:
    base = {"bootstrap.servers": bootstrap}
    source_tp, target_tp = TopicPartition("ours-in", 0), TopicPartition("ours-out", 0)
    with (
        ours.RecordingProducer(base, history, "source") as source,
        ours.RecordingProducer(base | {"transactional.id": "ours"}, history, "pipeline out") as out,
        ours.RecordingConsumer(_settings(bootstrap, "ours-pipeline"), history, "pipeline in") as consumer,
        ours.RecordingConsumer(_settings(bootstrap, "ours-readers"), history, "reader") as reader,
    ):
        for number in range(_COUNT):
            source.send("ours-in", b"%d" % number)
        source.flush(_WAIT_S)
        out.init_transactions()
        consumer.subscribe(["ours-in"])
        for is_last in (False, True):
            out.begin_transaction()
            taken = 0
            while taken < _COUNT:
                for record in consumer.poll(_WAIT_S):
                    taken += 1
                    value = b"%s, last: %d" % (record.value, is_last)
                    out.send("ours-out", value, source=uid("ours-in", record.value))
            out.flush(_WAIT_S)
            if is_last:
                out.send_offsets_to_transaction({source_tp: OffsetAndMetadata(_COUNT)}, consumer.group_metadata())
                out.commit_transaction()
            else:
                out.abort_transaction()
                consumer.seek(source_tp, 0)
        reader.subscribe(["ours-out"])
        while not reader.assignment() or reader.position(target_tp) < 2 * _COUNT:
            reader.poll(_WAIT_S)
        reader.commit()


def _with_librdkafka(bootstrap: str, history: History) -> None:
    base = {"bootstrap.servers": bootstrap}
    source = librdkafka.RecordingProducer(base, history, "source")
    out = librdkafka.RecordingProducer(base | {"transactional.id": "rd"}, history, "pipeline out")
    consumer = librdkafka.RecordingConsumer(_settings(bootstrap, "rd-pipeline"), history, "pipeline in")
    reader = librdkafka.RecordingConsumer(_settings(bootstrap, "rd-readers"), history, "reader")
    for number in range(_COUNT):
        source.produce("rd-in", b"%d" % number)
    assert source.flush(_WAIT_S) == 0
    out.init_transactions(_WAIT_S)
    consumer.subscribe(["rd-in"])
    for is_last in (False, True):
        out.begin_transaction()
        taken = 0
        while taken < _COUNT:
            for message in consumer.consume(_COUNT, timeout=1.0):
                taken += 1
                value = b"%s, last: %d" % (message.value(), is_last)
                out.produce("rd-out", value, source=uid("rd-in", message.value()))
        assert out.flush(_WAIT_S) == 0
        if is_last:
            ends = consumer.position(consumer.assignment())
            out.send_offsets_to_transaction(ends, consumer.consumer_group_metadata(), _WAIT_S)
            out.commit_transaction(_WAIT_S)
        else:
            out.abort_transaction(_WAIT_S)
            consumer.seek(confluent_kafka.TopicPartition("rd-in", 0, 0))
    consumer.close()
    reader.subscribe(["rd-out"])
    taken = 0
    while taken < _COUNT:
        taken += len(reader.consume(_COUNT, timeout=1.0))
    reader.commit(asynchronous=False)
    reader.close()


@pytest.fixture(scope="module", params=["ours", "rd"])
def events(request: pytest.FixtureRequest) -> Iterator[list[Event]]:
    """A pipeline, of which one transaction is aborted and done again; and readers of what it made."""
    kind, history = request.param, History()
    with Broker() as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic(f"{kind}-{name}", 1, 1) for name in ("in", "out")]).values():
            made.result(_WAIT_S)
        (_with_ours if kind == "ours" else _with_librdkafka)(bootstrap, history)
        note_logs(history, bootstrap, {f"{kind}-in": 1, f"{kind}-out": 1})
        for group in ("pipeline", "readers"):
            note_positions(history, bootstrap, f"{kind}-{group}")
    history.drained(f"{kind}-pipeline", [TopicPartition(f"{kind}-in", 0)], transforms=True)
    history.drained(f"{kind}-readers", [TopicPartition(f"{kind}-out", 0)])
    yield list(history.events)


def test_a_good_history_has_no_anomaly_and_everything_was_noted(events: list[Event]) -> None:
    assert check_history(events) == []
    facts = [event.fact for event in events]
    counts = {kind: sum(isinstance(fact, kind) for fact in facts) for kind in (Sent, Acknowledged, Ending, Ended)}
    assert counts == {Sent: 3 * _COUNT, Acknowledged: 3 * _COUNT, Ending: 2, Ended: 2}
    assert [len(fact.records) for fact in facts if isinstance(fact, Log)] == [_COUNT, 2 * _COUNT]
    assert [fact.generation > 0 for fact in facts if isinstance(fact, Assigned)] == [True, True]
    assert [fact.outcome for fact in facts if isinstance(fact, Committed)] == ["committed"]
    assert all(fact.generation > 0 and fact.member_id for fact in facts if isinstance(fact, Committed | OffsetsSent))
    assert sum(len(fact.records) for fact in facts if isinstance(fact, Polled)) == 3 * _COUNT


def _without_the_last_record(log: Log) -> Log:
    return replace(log, records=log.records[:-1])


def _with_the_aborted_ones(log: Log) -> Log:
    return replace(log, records=tuple(record._replace(visible=True) for record in log.records))


def _with_a_copy(log: Log) -> Log:
    last = log.records[-1]
    return replace(log, records=(*log.records, last._replace(offset=last.offset + 5)))


_FAULTS: list[tuple[type[Fact], Callable[..., Fact | None], set[str]]] = [
    (Log, _without_the_last_record, {"lost-write", "vanished-read"}),
    (Log, _with_the_aborted_ones, {"duplicate"}),
    (Log, _with_a_copy, {"duplicate", "unseen"}),
    (Log, lambda log: replace(log, last_stable_offset=1), {"stuck-lso"}),
    (Polled, lambda polled: replace(polled, records=polled.records[1:]), {"unseen", "commit-ahead"}),
    (Polled, lambda polled: replace(polled, records=polled.records[::-1]), {"nonmonotonic-poll"}),
    (Acknowledged, lambda told: replace(told, offset=told.offset - 1), {"lost-write", "inconsistent-offsets"}),
    (Acknowledged, lambda told: None, {"never-settled"}),
    (Ended, lambda ended: replace(ended, outcome="aborted"), {"aborted-read"}),
    (Positions, lambda positions: replace(positions, offsets={}), {"commit-regression"}),
    (OffsetsSent, lambda sent: replace(sent, generation=-1), {"unfenced-commit"}),
]


@pytest.mark.parametrize("number", range(len(_FAULTS)))
def test_a_fault_that_is_put_in_by_hand_is_found(events: list[Event], number: int) -> None:
    """Into the last fact of its kind."""
    kind, change, expected = _FAULTS[number]
    at = max(index for index, event in enumerate(events) if isinstance(event.fact, kind))
    changed = change(events[at].fact)
    wrong = [*events[:at], *([] if changed is None else [replace(events[at], fact=changed)]), *events[at + 1 :]]
    found = {anomaly.name for anomaly in check_history(wrong)}
    assert expected <= found, found
