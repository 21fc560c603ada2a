"""Checkers: they look for anomalies in a world's history and logs. Where Jepsen has a name for one, we use it."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.wire.batch import parse_end_txn_marker
from ottla.wire.records import decode_batch
from sim.cluster.log import Entry
from sim.history import Event, Refused, Sent, Settled


class Anomaly(NamedTuple):
    """Something that must not happen. The events that mention the texts in `around` show how it came about."""

    name: str
    text: str
    around: tuple[str, ...] = ()


class LogRecord(NamedTuple):
    """One record in the final log of a partition. `visible`: a read_committed consumer may return it."""

    offset: int
    uid: str
    producer_id: int
    epoch: int
    transactional: bool
    visible: bool


class Evidence(NamedTuple):
    """All that the checkers read."""

    events: list[Event]
    logs: Mapping[TopicPartition, list[LogRecord]]
    #: Lives of processes that were killed: their records may stay without an outcome.
    killed: frozenset[str] = frozenset()
    #: Partitions that groups read.
    inputs: frozenset[TopicPartition] = frozenset()
    #: Partitions with an open transaction, and its first offset.
    open_transactions: Mapping[TopicPartition, int] = {}
    #: The offsets that the pipeline's group has committed in the end; None in a world without a pipeline.
    positions: Mapping[TopicPartition, int] | None = None
    #: The groups that read, and whether each reads only what is committed.
    groups: Mapping[str, bool] = {}


def records_of(entries: list[Entry]) -> list[LogRecord]:
    """The data records of a log; `visible` follows from the end of their transactions."""
    found: list[LogRecord] = []
    open_at: dict[int, list[int]] = {}
    for entry in entries:
        header = entry.header
        if header.is_control:
            commit, _ = parse_end_txn_marker(entry.payload)
            for at in open_at.pop(header.producer_id, ()):
                found[at] = found[at]._replace(visible=commit)
            continue
        for record in decode_batch(entry.payload):
            uid = bytes(record.value or b"").rstrip(b".").decode()
            if header.is_transactional:
                open_at.setdefault(header.producer_id, []).append(len(found))
            found.append(
                LogRecord(
                    record.offset,
                    uid,
                    header.producer_id,
                    header.producer_epoch,
                    header.is_transactional,
                    visible=not header.is_transactional,
                )
            )
    return found


def check(evidence: Evidence) -> list[Anomaly]:
    """All anomalies of what was written."""
    return [anomaly for checker in _CHECKERS for anomaly in checker(evidence)]


def lost_write(evidence: Evidence) -> Iterator[Anomaly]:
    """A record was acknowledged, and the log does not have it at that offset."""
    where = {(tp, record.offset): record.uid for tp, log in evidence.logs.items() for record in log}
    somewhere = {(tp, record.uid) for tp, log in evidence.logs.items() for record in log}
    for event in evidence.events:
        told = event.data
        if isinstance(told, Settled) and told.tp is not None and told.offset >= 0:
            there = where.get((told.tp, told.offset))
            if there != told.uid:
                text = f"{told.uid} was acknowledged at {told.tp}@{told.offset}, but {there or 'nothing'} is there"
                yield Anomaly("lost-write", text, (told.uid, event.who))
        elif isinstance(told, Settled) and told.tp is not None and (told.tp, told.uid) not in somewhere:
            text = f"{told.uid} was acknowledged in {told.tp} without an offset, and the log does not have it"
            yield Anomaly("lost-write", text, (told.uid, event.who))


def refused_write(evidence: Evidence) -> Iterator[Anomaly]:
    """A record is in the log although `send` raised: its user may have sent it again."""
    refused = {event.data.uid for event in evidence.events if isinstance(event.data, Refused)}
    for tp, log in evidence.logs.items():
        for record in log:
            if record.uid in refused:
                text = f"{record.uid} is at {tp}@{record.offset}, but send() refused it"
                yield Anomaly("refused-write", text, (record.uid, life_of(record.uid)))


def duplicate(evidence: Evidence) -> Iterator[Anomaly]:
    """A record that was sent once is in the log twice (SPEC P4, P6)."""
    seen: dict[str, str] = {}
    for tp, log in evidence.logs.items():
        for record in log:
            here = f"{tp}@{record.offset}"
            if record.uid in seen:
                text = f"{record.uid} is at {seen[record.uid]} and at {here}"
                yield Anomaly("duplicate", text, (record.uid, life_of(record.uid)))
            seen[record.uid] = here


def nonmonotonic_send(evidence: Evidence) -> Iterator[Anomaly]:
    """A partition has records of one producer in another order than the producer's user sent them."""
    order = {event.data.uid: at for at, event in enumerate(evidence.events) if isinstance(event.data, Sent)}
    for tp, log in evidence.logs.items():
        last: dict[str, LogRecord] = {}
        for record in log:
            producer = record.uid.partition(":")[0].rpartition("-")[0]
            before = last.get(producer)
            if before is not None and order.get(before.uid, -1) > order.get(record.uid, -1):
                yield Anomaly(
                    "nonmonotonic-send",
                    f"{tp}: {before.uid}@{before.offset} is before {record.uid}@{record.offset}, and was sent after it",
                    (before.uid, record.uid, life_of(record.uid)),
                )
            last[producer] = record


def never_settled(evidence: Evidence) -> Iterator[Anomaly]:
    """A record has no outcome, although all faults are over."""
    done = {event.data.uid for event in evidence.events if isinstance(event.data, Settled | Refused)}
    for event in evidence.events:
        if isinstance(event.data, Sent) and event.who not in evidence.killed and event.data.uid not in done:
            yield Anomaly("never-settled", f"{event.data.uid} has no outcome", (event.data.uid, event.who))


def unknown_record(evidence: Evidence) -> Iterator[Anomaly]:
    """The log has a record that nobody has sent."""
    sent = {event.data.uid for event in evidence.events if isinstance(event.data, Sent)}
    for tp, log in evidence.logs.items():
        for record in log:
            if record.uid not in sent:
                yield Anomaly("unknown-record", f"{tp}@{record.offset}: nobody has sent {record.uid!r}")


def life_of(uid: str) -> str:
    """The life that has sent a record: `name.life` of `name.life.client-number`."""
    return ".".join(uid.split(".")[:2])


_CHECKERS: tuple[Callable[[Evidence], Iterator[Anomaly]], ...] = (
    lost_write,
    refused_write,
    duplicate,
    nonmonotonic_send,
    never_settled,
    unknown_record,
)
