"""Every checker is shown a history that it must not let pass, and the same history without the fault, which it must."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ottla.base.types import TopicPartition
from sim.check import Anomaly, Evidence, LogRecord, check
from sim.check_readers import check_readers
from sim.check_transactions import check_transactions
from sim.history import (
    Assigned,
    Began,
    Committed,
    Decided,
    Ended,
    Ending,
    Event,
    Marked,
    Outdated,
    Polled,
    Refused,
    Sent,
    Settled,
)
from sim.known import known

TP = TopicPartition("t", 0)


def _events(*told: object, who: str = "p0.1") -> list[Event]:
    return [Event(float(at), who, "", "", data) for at, data in enumerate(told)]


def _log(*uids: str, aborted: Sequence[str] = ()) -> dict[TopicPartition, list[LogRecord]]:
    return {TP: [LogRecord(at, uid, 1, 0, False, uid not in aborted) for at, uid in enumerate(uids)]}


def _found(evidence: Evidence) -> set[str]:
    return {anomaly.name for anomaly in _all(evidence)}


def _all(evidence: Evidence) -> list[Anomaly]:
    return check(evidence) + check_transactions(evidence) + check_readers(evidence)


def _sent(*uids: str, txn: str | None = None) -> list[object]:
    return [each for uid in uids for each in (Sent(uid, txn), Settled(uid, TP, int(uid.rpartition("-")[2])))]


def _polled(*offsets: int, read_committed: bool = True) -> Polled:
    return Polled("g", tuple((TP, offset, f"p0.1-{offset}") for offset in offsets), read_committed)


def _read(events: list[Event], logs: dict[TopicPartition, list[LogRecord]]) -> Evidence:
    """With a group that reads everything."""
    return Evidence(events, logs, inputs=frozenset({TP}), groups={"g": True})


def _committed(offset: int, generation: int = 1) -> Committed:
    return Committed("g", "m", generation, {TP: offset})


_OUTPUTS = ("x0.1.1-1:p1.1-0", "x0.1.1-2:p0.1-0")
_THREE = ("p0.1-0", "p0.1-1", "p0.1-2")

_HISTORIES: dict[str, tuple[str, Callable[[], Evidence], Callable[[], Evidence]]] = {
    "acknowledged and gone": (
        "lost-write",
        lambda: Evidence(_events(*_sent(*_THREE)), _log("p0.1-0", "p0.1-1")),
        lambda: Evidence(_events(*_sent(*_THREE)), _log(*_THREE)),
    ),
    "acknowledged without an offset and gone": (
        "lost-write",
        lambda: Evidence(_events(Sent("p0.1-0"), Settled("p0.1-0", TP, -1)), _log()),
        lambda: Evidence(_events(Sent("p0.1-0"), Settled("p0.1-0", TP, -1)), _log("p0.1-0")),
    ),
    "refused and written": (
        "refused-write",
        lambda: Evidence(_events(Sent("p0.1-0"), Refused("p0.1-0", "RequestTimeoutError")), _log("p0.1-0")),
        lambda: Evidence(_events(Sent("p0.1-0"), Refused("p0.1-0", "RequestTimeoutError")), _log()),
    ),
    "written twice": (
        "duplicate",
        lambda: Evidence(_events(*_sent(*_THREE)), _log(*_THREE, "p0.1-1")),
        lambda: Evidence(_events(*_sent(*_THREE)), _log(*_THREE)),
    ),
    "in another order": (
        "nonmonotonic-send",
        lambda: Evidence(_events(*map(Sent, ("p0.1-1", "p0.1-0"))), _log("p0.1-0", "p0.1-1")),
        lambda: Evidence(_events(*map(Sent, ("p0.1-0", "p0.1-1"))), _log("p0.1-0", "p0.1-1")),
    ),
    "outputs in another order": (
        "nonmonotonic-send",
        lambda: Evidence(_events(*map(Sent, ("x0.1.1-2:p0.1-0", "x0.1.1-1:p1.1-0"))), _log(*_OUTPUTS)),
        lambda: Evidence(_events(*map(Sent, _OUTPUTS)), _log(*_OUTPUTS)),
    ),
    "a fate that nobody knows": (
        "never-settled",
        lambda: Evidence(_events(Sent("p0.1-0")), _log()),
        lambda: Evidence(_events(Sent("p0.1-0")), _log(), killed=frozenset({"p0.1"})),
    ),
    "written by nobody": (
        "unknown-record",
        lambda: Evidence(_events(*_sent("p0.1-0")), _log("p0.1-0", "p9.9-9")),
        lambda: Evidence(_events(*_sent("p0.1-0")), _log("p0.1-0")),
    ),
    "half of a transaction": (
        "torn-transaction",
        lambda: Evidence(_events(*_sent(*_THREE, txn="T")), _log(*_THREE, aborted=["p0.1-1"])),
        lambda: Evidence(_events(*_sent(*_THREE, txn="T")), _log(*_THREE, aborted=_THREE)),
    ),
    "committed and not there": (
        "lost-write",
        lambda: Evidence(_events(*_sent(*_THREE, txn="T"), Ended("T", "committed")), _log(*_THREE, aborted=_THREE)),
        lambda: Evidence(_events(*_sent(*_THREE, txn="T"), Ended("T", "committed")), _log(*_THREE)),
    ),
    "aborted and there": (
        "aborted-read",
        lambda: Evidence(_events(*_sent(*_THREE, txn="T"), Ended("T", "aborted")), _log(*_THREE)),
        lambda: Evidence(_events(*_sent(*_THREE, txn="T"), Ended("T", "aborted")), _log(*_THREE, aborted=_THREE)),
    ),
    "a transaction that never ends": (
        "stuck-lso",
        lambda: Evidence([], _log(), open_transactions={TP: 0}),
        lambda: Evidence([], _log()),
    ),
    "processed twice": (
        "duplicate",
        lambda: _pipeline(("x0.1.1-1:p0.1-0", "x0.1.1-2:p0.1-0"), 1),
        lambda: _pipeline(("x0.1.1-1:p0.1-0",), 1),
    ),
    "passed over": (
        "lost-write",
        lambda: _pipeline((), 1),
        lambda: _pipeline(("x0.1.1-1:p0.1-0",), 1),
    ),
    "not processed at all": (
        "unprocessed",
        lambda: _pipeline((), 0),
        lambda: _pipeline(("x0.1.1-1:p0.1-0",), 1),
    ),
    "processed, and the position forgotten": (
        "unprocessed",
        lambda: _pipeline(("x0.1.1-1:p0.1-0",), 0),
        lambda: _pipeline(("x0.1.1-1:p0.1-0",), 1),
    ),
    "read and gone": (
        "vanished-read",
        lambda: Evidence(_events(*_sent(*_THREE), _polled(0, 1)), _log("p0.1-0")),
        lambda: Evidence(_events(*_sent(*_THREE), _polled(0, 1)), _log("p0.1-0", "p0.1-1")),
    ),
    "read, and not committed": (
        "aborted-read",
        lambda: Evidence(_events(*_sent(*_THREE), _polled(0, 1)), _log(*_THREE, aborted=["p0.1-1"])),
        lambda: Evidence(
            _events(*_sent(*_THREE), _polled(0, 1, read_committed=False)), _log(*_THREE, aborted=["p0.1-1"])
        ),
    ),
    "read again": (
        "nonmonotonic-poll",
        lambda: Evidence(_events(*_sent(*_THREE), _polled(0, 1), _polled(1)), _log(*_THREE)),
        lambda: Evidence(
            _events(*_sent(*_THREE), _polled(0, 1), Assigned("g", "assigned", 2, (TP,)), _polled(1)), _log(*_THREE)
        ),
    ),
    "read past something": (
        "poll-skip",
        lambda: Evidence(_events(*_sent(*_THREE), _polled(0, 2)), _log(*_THREE)),
        lambda: Evidence(_events(*_sent(*_THREE), _polled(0, 2)), _log(*_THREE, aborted=["p0.1-1"])),
    ),
    "never read by anybody, as nothing was": (
        "unseen",
        lambda: _read(_events(*_sent("p0.1-0")), _log("p0.1-0")),
        lambda: _read(_events(*_sent("p0.1-0"), _polled(0)), _log("p0.1-0")),
    ),
    "of two members": (
        "two-owners",
        lambda: Evidence(_both_own("r1.1"), _log()),
        lambda: Evidence(_both_own("r0.2"), _log()),
    ),
    "an old generation's position": (
        "commit-regression",
        lambda: Evidence(_events(_committed(0, 2), _committed(0, 1)), _log()),
        lambda: Evidence(_events(_committed(0, 1), _committed(0, 2)), _log()),
    ),
    "a position over what nobody has": (
        "commit-ahead",
        lambda: _read(_events(*_sent(*_THREE), _polled(0, 1), _committed(3), _polled(2)), _log(*_THREE)),
        lambda: _read(_events(*_sent(*_THREE), _polled(0, 1, 2), _committed(3)), _log(*_THREE)),
    ),
    "positions of nobody": (
        "unfenced-commit",
        lambda: Evidence([Event(0.0, "broker1", "unfenced offsets", "x0 of nobody/-1")], _log()),
        lambda: Evidence([Event(0.0, "broker1", "offsets in txn", "x0 of m/1")], _log()),
    ),
}


def _pipeline(outputs: Sequence[str], position: int) -> Evidence:
    out = TopicPartition("out", 0)
    logs = _log("p0.1-0") | {out: _log(*outputs)[TP]}
    sent = [*_sent("p0.1-0"), *(each for uid in outputs for each in (Sent(uid), Settled(uid, None, -1, "")))]
    return Evidence(_events(*sent), logs, inputs=frozenset({TP}), positions={TP: position} if position else {})


def _both_own(second: str) -> list[Event]:
    given = Assigned("g", "assigned", 3, (TP,))
    return _events(given, who="r0.1") + _events(given, who=second)


@pytest.mark.parametrize("story", _HISTORIES)
def test_a_checker_tells_of_the_fault_and_of_nothing_else(story: str) -> None:
    name, wrong, right = _HISTORIES[story]
    assert name in _found(wrong())
    assert name not in _found(right())


# what is known

_RULES = Event(0.0, "world", "rules", "Rules(transaction_version=0)")
_TORN = Anomaly("torn-transaction", "T2: …", ("p0.1-1", "T2", "p0.1"))


def _two_transactions(*more: object) -> list[Event]:
    first = (Began("T1", "p0", 5.0), *_sent("p0.1-0", txn="T1"), Ending("T1", True), Decided("p0", 1, True))
    return [_RULES, *_events(*first, Ended("T1", "committed"), Began("T2", "p0", 5.0), *more)]


_OWN_END = (*_sent("p0.1-1", txn="T2"), Ending("T2", True), Decided("p0", 1, True), Marked("p0", 1, True))
_LATE = {
    "an EndTxn before anybody asked": (*_sent("p0.1-1", txn="T2"), Decided("p0", 1, True), Ending("T2", True)),
    "an EndTxn of the other kind": (*_sent("p0.1-1", txn="T2"), Ending("T2", False), Decided("p0", 1, True)),
    "an EndTxn while a record is on its way": (Sent("p0.1-1", "T2"), Ending("T2", True), Decided("p0", 1, True)),
    "an EndTxn that commits although a record has failed": (
        Sent("p0.1-1", "T2"),
        Ending("T2", True),
        Settled("p0.1-1", None, -1, "RequestTimeoutError"),
        Ending("T2", False),
        Decided("p0", 1, True),
    ),
    "a marker before the end": (*_sent("p0.1-1", txn="T2"), Marked("p0", 1, True), *_OWN_END[2:]),
}


@pytest.mark.parametrize("story", _LATE)
def test_a_late_end_of_the_first_protocol_is_known(story: str) -> None:
    events = _two_transactions(*_LATE[story])
    assert known(_TORN, events) == "late-end-of-the-first-protocol"
    assert known(_TORN, [_RULES._replace(text="Rules(transaction_version=2)"), *events[1:]]) is None
    assert known(_TORN._replace(around=("p0.1-0", "T1", "p0.1")), events) is None, "the transaction before is another"


def test_without_a_late_end_a_torn_transaction_is_news() -> None:
    assert known(_TORN, _two_transactions(*_OWN_END)) is None
    timed_out = (*_sent("p0.1-1", txn="T2"), Marked("p0", 2, False), Ending("T2", True))
    assert known(_TORN, _two_transactions(*timed_out)) is None, "a time-out aborts in an epoch of its own"


def test_what_a_reader_saw_or_a_plain_producer_lost_is_never_known() -> None:
    events = _two_transactions(*_LATE["an EndTxn before anybody asked"])
    assert known(Anomaly("aborted-read", "r0.1 was given …", ("p9.1-1", "r0.1")), events) is None
    assert known(Anomaly("lost-write", "p9.1-1 was acknowledged …", ("p9.1-1", "p9.1")), events) is None
    assert known(_TORN._replace(name="duplicate"), events) is None


_TWICE = Anomaly("duplicate", "…", ("p0.1-7", "t-0@7", "x0.1.1-1:p0.1-7", "x0.1.1-9:p0.1-7"))


def test_an_input_that_a_deposed_coordinator_told_again_is_known() -> None:
    told = _events(Outdated("x0.1", TP, 5, 8))
    assert known(_TWICE, told) == "offsets-of-a-deposed-coordinator"
    for other in (Outdated("x0.1", TP, 8, 9), Outdated("x0.1", TP, 5, 7), Outdated("x1.1", TP, 5, 8)):
        assert known(_TWICE, _events(other)) is None
    assert known(_TWICE._replace(name="lost-write"), told) is None
