"""Checkers of transactions: all or nothing, as the user was told; and each input of a pipeline exactly once."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from ottla.base.types import TopicPartition
from sim.check import Anomaly, Evidence, LogRecord, life_of
from sim.history import Ended, Sent


def check_transactions(evidence: Evidence) -> list[Anomaly]:
    """All anomalies of transactions."""
    return [anomaly for checker in _CHECKERS for anomaly in checker(evidence)]


def _by_txn(evidence: Evidence) -> dict[str, list[str]]:
    """The records that were sent in each transaction."""
    found: dict[str, list[str]] = defaultdict(list)
    for event in evidence.events:
        if isinstance(event.data, Sent) and event.data.txn is not None:
            found[event.data.txn].append(event.data.uid)
    return found


def _visible(evidence: Evidence) -> set[str]:
    return {record.uid for log in evidence.logs.values() for record in log if record.visible}


def torn_transaction(evidence: Evidence) -> Iterator[Anomaly]:
    """Only some records of a transaction are committed; or its end is not the one that its user was told."""
    visible = _visible(evidence)
    told = {event.data.txn: event.data.outcome for event in evidence.events if isinstance(event.data, Ended)}
    for txn, uids in _by_txn(evidence).items():
        there = [uid for uid in uids if uid in visible]
        outcome = told.get(txn, "unknown")
        about = (*uids[:3], txn, life_of(txn))
        if outcome == "committed" and len(there) != len(uids):
            missing = [uid for uid in uids if uid not in visible]
            yield Anomaly("lost-write", f"{txn} was committed, and {', '.join(missing)} of it is not there", about)
        elif outcome == "aborted" and there:
            yield Anomaly("aborted-read", f"{txn} was aborted, and {', '.join(there)} of it is committed", about)
        elif there and len(there) != len(uids):
            missing = [uid for uid in uids if uid not in visible]
            text = f"{txn}: {', '.join(there)} is committed, {', '.join(missing)} is not"
            yield Anomaly("torn-transaction", text, about)


def hanging_transaction(evidence: Evidence) -> Iterator[Anomaly]:
    """A transaction is open long after its timeout: read_committed consumers stop there (stuck LSO)."""
    for tp, first_offset in evidence.open_transactions.items():
        yield Anomaly("stuck-lso", f"{tp}: a transaction is open from offset {first_offset} on")


def exactly_once(evidence: Evidence) -> Iterator[Anomaly]:
    """Each committed input has one committed output, and the pipeline's committed offset is behind the input."""
    if evidence.positions is None:
        return
    made: dict[str, list[str]] = defaultdict(list)
    for log in evidence.logs.values():
        for record in log:
            _, colon, source = record.uid.partition(":")
            if colon and record.visible:
                made[source].append(record.uid)
    for tp in sorted(evidence.inputs):
        for record in evidence.logs.get(tp, ()):
            if record.visible:
                yield from _judged(tp, record, made.get(record.uid, []), evidence.positions.get(tp, 0))


def _judged(tp: TopicPartition, record: LogRecord, outputs: list[str], position: int) -> Iterator[Anomaly]:
    if len(outputs) == 1 and record.offset < position:
        return
    name = "duplicate" if len(outputs) > 1 else "lost-write" if record.offset < position else "unprocessed"
    text = f"{record.uid} at {tp}@{record.offset} became {', '.join(outputs) or 'nothing'}; the group is at {position}"
    yield Anomaly(name, text, (record.uid, f"{tp}@{record.offset}", *outputs))


_CHECKERS: tuple[Callable[[Evidence], Iterator[Anomaly]], ...] = (torn_transaction, hanging_transaction, exactly_once)
