"""What a small correct Kafka does is no anomaly, whatever is done to it (Hypothesis)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.testing.history import Event, History, LogRecord, check_history
from ottla.testing.history.facts import Log, Polled

_PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
_GROUP = "g"


@dataclass
class _Stored:
    uid: str
    txn: str | None


@dataclass
class _Kafka:
    """Two partitions, two producers (one of transactions), a group of two members. Every step is noted."""

    history: History = field(default_factory=lambda: History(lambda: 0.0))
    logs: dict[TopicPartition, list[_Stored | None]] = field(default_factory=lambda: {tp: [] for tp in _PARTITIONS})
    outcome: dict[str, str] = field(default_factory=dict)
    open_txn: str | None = None
    generation: int = 0
    owner: dict[TopicPartition, str] = field(default_factory=dict)
    position: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    count: int = 0
    #: Somebody has sought forward, so the group has not read everything.
    has_leapt: bool = False

    # producers

    def send(self, number: int, fate: int) -> None:
        """Acknowledged; written and not told; not written and not told; refused."""
        self.count += 1
        uid, notes, tp = f"plain {self.count}", self.history.producer("p"), _PARTITIONS[number]
        notes.sent(uid)
        if fate < 2:
            self.logs[tp].append(_Stored(uid, None))
        match fate:
            case 0:
                notes.acknowledged(uid, tp, len(self.logs[tp]) - 1)
            case 1 | 2:
                notes.unknown(uid, "timeout")
            case _:
                notes.failed(uid, "refused")

    def send_in_txn(self, number: int, fate: int) -> None:
        """A record of the open transaction, or of a new one."""
        self.count += 1
        uid, notes, tp = f"of a transaction {self.count}", self.history.producer("x"), _PARTITIONS[number]
        if self.open_txn is None:
            self.open_txn = f"T{self.count}"
            notes.began(self.open_txn, "x")
        notes.sent(uid, txn=self.open_txn)
        self.logs[tp].append(_Stored(uid, self.open_txn))
        notes.acknowledged(uid, tp, len(self.logs[tp]) - 1 if fate % 2 else -1)

    def end(self, number: int, fate: int) -> None:
        """Commit or abort, told or not."""
        txn, self.open_txn = self.open_txn, None
        if txn is None:
            return
        notes, commit = self.history.producer("x"), bool(number)
        notes.ending(txn, commit=commit)
        self.outcome[txn] = "committed" if commit else "aborted"
        for log in self.logs.values():
            if any(record is not None and record.txn == txn for record in log):
                log.append(None)  # the marker
        notes.ended(txn, "unknown" if fate == 0 else "committed" if commit else "aborted")

    # the group

    def rebalance(self, number: int, fate: int) -> None:
        """Partitions change hands; positions begin at what is committed."""
        self.generation += 1
        for member in ("c1", "c2"):
            notes = self.history.consumer(member, group=_GROUP)
            notes.revoked([tp for tp in _PARTITIONS if self.owner.get(tp) == member], generation=self.generation - 1)
        for tp in _PARTITIONS:
            self.owner[tp] = ("c1", "c2")[(tp.partition + number) % 2] if fate % 2 else ("c1", "c2")[number]
            self.position[tp] = self.committed.get(tp, 0)
        for member in ("c1", "c2"):
            mine = [tp for tp in _PARTITIONS if self.owner[tp] == member]
            self.history.consumer(member, group=_GROUP).assigned(mine, generation=self.generation)

    def poll(self, number: int, most: int) -> None:
        """Records from the position on, up to the last stable offset."""
        tp = _PARTITIONS[number]
        if tp not in self.owner:
            return
        found: list[tuple[TopicPartition, int, str]] = []
        while self.position[tp] < self._stable(tp) and len(found) <= most:
            record, offset = self.logs[tp][self.position[tp]], self.position[tp]
            self.position[tp] += 1
            if record is not None and self._visible(record):
                found.append((tp, offset, record.uid))
        self.history.consumer(self.owner[tp], group=_GROUP).polled(found)

    def commit(self, number: int, fate: int) -> None:
        """The position; with fate 3 by a member of the generation before, who is refused."""
        tp = _PARTITIONS[number]
        if tp not in self.owner:
            return
        self.count += 1
        notes, call = self.history.consumer(self.owner[tp], group=_GROUP), f"commit {self.count}"
        notes.called(call)
        member_id, offsets = self.owner[tp], {tp: self.position[tp]}
        if fate == 3:
            old = self.generation - 1
            notes.committed(offsets, member_id=member_id, generation=old, outcome="failed", call=call)
        else:
            self.committed |= offsets
            notes.committed(
                offsets,
                member_id=member_id,
                generation=self.generation,
                outcome="committed" if fate else "unknown",
                call=call,
            )
        notes.returned(call)

    def seek(self, number: int, back: int) -> None:
        """The owner reads something again."""
        tp = _PARTITIONS[number]
        if tp in self.owner:
            self.position[tp] = max(0, self.position[tp] - back)
            self.history.consumer(self.owner[tp], group=_GROUP).sought({tp: self.position[tp]})

    def leap(self, number: int, wide: int) -> None:
        """The owner goes forward, and leaves out what is between; or to the end, wherever that is."""
        tp = _PARTITIONS[number]
        if tp in self.owner:
            self.has_leapt = True
            end = len(self.logs[tp])
            to = end if wide == 3 else min(end, self.position[tp] + wide)
            self.position[tp] = max(to, self.position[tp])
            told = -1 if wide == 3 else self.position[tp]
            self.history.consumer(self.owner[tp], group=_GROUP).sought({tp: told})

    # the end

    def finish(self, *, read_back: bool) -> History:
        """Transactions end, the group reads what is left; then the final state, if it is read back."""
        self.end(0, 1)
        self.rebalance(0, 1)
        for number in range(len(_PARTITIONS)):
            self.poll(number, 10_000)
        if read_back:
            for tp, log in self.logs.items():
                records = [
                    LogRecord(offset, record.uid, self._visible(record))
                    for offset, record in enumerate(log)
                    if record is not None
                ]
                self.history.log(tp, records, high_watermark=len(log), last_stable_offset=self._stable(tp))
            self.history.positions(_GROUP, self.committed)
        if not self.has_leapt:
            self.history.drained(_GROUP, _PARTITIONS)
        return self.history

    def _visible(self, record: _Stored) -> bool:
        return record.txn is None or self.outcome.get(record.txn) == "committed"

    def _stable(self, tp: TopicPartition) -> int:
        for offset, record in enumerate(self.logs[tp]):
            if record is not None and record.txn is not None and record.txn not in self.outcome:
                return offset
        return len(self.logs[tp])


_STEPS = (
    _Kafka.send,
    _Kafka.send_in_txn,
    _Kafka.end,
    _Kafka.rebalance,
    _Kafka.poll,
    _Kafka.commit,
    _Kafka.seek,
    _Kafka.leap,
)
_steps = st.lists(st.tuples(st.sampled_from(_STEPS), st.integers(0, 1), st.integers(0, 3)), max_size=80)


def _lived(steps: list[tuple[object, int, int]], *, read_back: bool) -> History:
    kafka = _Kafka()
    for step, number, fate in steps:
        assert callable(step)
        step(kafka, number, fate)
    return kafka.finish(read_back=read_back)


@settings(max_examples=300)
@given(_steps, st.booleans())
def test_a_correct_kafka_has_no_anomaly(steps: list[tuple[object, int, int]], read_back: bool) -> None:
    assert check_history(_lived(steps, read_back=read_back)) == []


@settings(max_examples=300)
@given(_steps, st.data())
def test_a_record_that_nobody_keeps_is_found(steps: list[tuple[object, int, int]], data: st.DataObject) -> None:
    """The final log without one record that a consumer was given: each of them is missed."""
    events = _lived(steps, read_back=True).events
    given_ = sorted({read for event in events if isinstance(event.fact, Polled) for read in event.fact.records})
    if given_:
        gone = data.draw(st.sampled_from(given_))
        assert "vanished-read" in {anomaly.name for anomaly in check_history([_without(e, gone) for e in events])}


def _without(event: Event, gone: tuple[TopicPartition, int, str]) -> Event:
    log = event.fact
    if not isinstance(log, Log) or log.tp != gone[0]:
        return event
    left = tuple(record for record in log.records if record.offset != gone[1])
    return Event(event.at_s, event.who, Log(log.tp, left, 0, log.high_watermark, log.last_stable_offset))


@settings(max_examples=200)
@given(_steps)
def test_polls_without_the_assignments_between_them_go_back(steps: list[tuple[object, int, int]]) -> None:
    """A reader that is given its first record once more, without a word, goes back."""
    events = list(_lived(steps, read_back=True).events)
    polls = [event for event in events if isinstance(event.fact, Polled)]
    if polls:
        last = polls[-1]
        assert isinstance(last.fact, Polled)
        again = Event(last.at_s, last.who, Polled(last.fact.group, last.fact.records[:1], True))
        at = events.index(last) + 1
        assert {a.name for a in check_history([*events[:at], again, *events[at:]])} >= {"nonmonotonic-poll"}
