"""Checkers of transactions: torn-transaction, stuck-lso, and ends that are not what their users were told."""

from collections import defaultdict
from collections.abc import Iterator

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import Evidence
from ottla.testing.history.facts import Began, Ended, Ending, Event, Log, LogRecord


def whole_transactions(evidence: Evidence) -> Iterator[Anomaly]:
    """All records of a transaction are committed, or none; and as its user was told.

    A part of it: torn-transaction; or lost-write if the user was told "committed". Anything of it although the user
    was told "aborted", or nobody has asked for a commit: aborted-read. Excused: records whose send has failed for
    sure; those that may be in a partition that was not read back, or were deleted. A record that was sent in several
    transactions only has to be there if one is committed.
    """
    visible = {record.uid for log in evidence.known_logs for record in log.records if record.visible}
    absent = _Absent(evidence)
    unasked = _unasked(evidence)
    for txn, uids in evidence.records_of.items():
        sent = [uid for uid in uids if not evidence.has_failed(uid)]
        alone = [uid for uid in sent if len(evidence.sends[uid]) == 1]
        outcome = evidence.outcomes.get(txn, "unknown")
        here = sent if outcome == "committed" else alone
        there = [uid for uid in here if uid in visible]
        missing = [uid for uid in here if uid not in visible and absent.is_certain(uid)]
        about = (*uids[:3], txn, *evidence.senders(uids[0])[:1])
        if outcome == "committed" and missing:
            yield Anomaly("lost-write", f"{txn} was committed, and {_few(missing)} of it is not there", about)
        elif outcome == "aborted" and there:
            yield Anomaly("aborted-read", f"{txn} was aborted, and {_few(there)} of it is committed", about)
        elif txn in unasked and any(uid in visible for uid in alone):
            only = "only an abort of it was asked for" if unasked[txn] else "nobody has asked for its end"
            few = _few([uid for uid in alone if uid in visible])
            yield Anomaly("aborted-read", f"{txn}: {few} of it is committed, and {only}", about)
        elif there and missing:
            yield Anomaly("torn-transaction", f"{txn}: {_few(there)} is committed, {_few(missing)} is not", about)


def _unasked(evidence: Evidence) -> dict[str, bool]:
    """The transactions that nobody has asked to commit → whether somebody has asked to abort them.

    Only those whose ends the test notes: it has noted that it asked, or else that the transaction began, and no end.
    """
    asked: defaultdict[str, set[bool]] = defaultdict(set)
    noted: set[str] = set()
    for event in evidence.events:
        match event.fact:
            case Began(txn=txn):
                noted.add(txn)
            case Ending(txn=txn, commit=commit):
                asked[txn].add(commit)
            case Ended(txn=txn):
                asked[txn]  # noted afterwards, perhaps: what was asked for is not known
            case _:
                pass
    found = {txn: True for txn, ways in asked.items() if ways == {False}}
    found.update(dict.fromkeys(noted - asked.keys(), False))
    return found


class _Absent:
    """Whether a record that is not visible in any log is certainly not committed."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._logs = evidence.logs
        self._everywhere = evidence.has_every_log
        self._places = {told.uid: told for _, told in evidence.acknowledged}

    def is_certain(self, uid: str) -> bool:
        if self._everywhere:
            return True
        told = self._places.get(uid)
        log = None if told is None else self._logs.get(told.tp)
        if told is None or log is None or log.fact is None:
            return False
        return not self._evidence.may_be_gone(log.fact, told.offset)


def _few(uids: list[str]) -> str:
    more = f" and {len(uids) - 10} more" if len(uids) > 10 else ""
    return ", ".join(uids[:10]) + more


def stuck_lso(evidence: Evidence) -> Iterator[Anomaly]:
    """A transaction is open in the end: read_committed consumers never get beyond the last stable offset.

    Excused: one that is not older than its timeout when the log is read back, if the test has noted both.
    """
    began = {event.fact.txn: event for event in evidence.events if isinstance(event.fact, Began)}
    told = defaultdict[TopicPartition, list[LogRecord]](list)
    for _, each in evidence.acknowledged:
        told[each.tp].append(LogRecord(each.offset, each.uid))
    for event in evidence.events:
        match event.fact:
            case Log(tp=tp, high_watermark=int(end), last_stable_offset=int(stable)) as log if stable < end:
                # Of a log of which only committed records were read back, the producers know what is open.
                records = sorted([*log.records, *told[tp]] if log.committed_only else log.records)
                uid = next((record.uid for record in records if record.offset >= stable), None)
                if not _is_young(evidence, event, uid, began):
                    about = () if uid is None else (uid, *evidence.senders(uid))
                    text = f"{tp}: a transaction is open from offset {stable} on, and the log ends at {end}"
                    yield Anomaly("stuck-lso", text, (*about, f"{tp}@{stable}"))
            case _:
                pass


def _is_young(evidence: Evidence, now: Event, uid: str | None, began: dict[str, Event]) -> bool:
    for send in () if uid is None else evidence.sends.get(uid, ()):
        event = began.get(send.fact.txn or "")
        if event is not None and isinstance(event.fact, Began) and event.fact.timeout_s is not None:
            ended = evidence.outcomes.get(event.fact.txn, "unknown") != "unknown"
            if not ended and now.at_s - event.at_s < event.fact.timeout_s:
                return True
    return False
