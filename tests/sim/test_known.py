"""Anomalies whose cause is known are recognized by the events that cause them, and no other is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.types import TopicPartition
from ottla.testing.history import Anomaly
from ottla.testing.history.facts import Acknowledged, Assigned, Began, Committed, Ended, Ending, Sent
from sim.history import Decided, Event, IsMember, Marked, Outdated
from sim.known import known

TP = TopicPartition("t", 0)


def _events(*told: object, who: str = "p0.1") -> list[Event]:
    return [Event(float(at), who, "", "", data) for at, data in enumerate(told)]


def _sent(uid: str, txn: str) -> list[object]:
    return [Sent(uid, txn), Acknowledged(uid, TP, int(uid.rpartition("-")[2]))]


_RULES = Event(0.0, "world", "rules", "Rules(transaction_version=0)")
_TORN = Anomaly("torn-transaction", "T2: …", ("p0.1-1", "T2", "p0.1"))


def _two_transactions(*more: object) -> list[Event]:
    first = (Began("T1", "p0", 5.0), *_sent("p0.1-0", "T1"), Ending("T1", True), Decided("p0", 1, True))
    return [_RULES, *_events(*first, Ended("T1", "committed"), Began("T2", "p0", 5.0), *more)]


_OWN_END = (*_sent("p0.1-1", "T2"), Ending("T2", True), Decided("p0", 1, True), Marked("p0", 1, True))
_LATE = (*_sent("p0.1-1", "T2"), Marked("p0", 1, True), *_OWN_END[2:])


def test_a_late_marker_of_the_first_protocol_is_known() -> None:
    events = _two_transactions(*_LATE)
    assert known(_TORN, events) == "late-marker-of-the-first-protocol"
    assert known(_TORN, [_RULES._replace(text="Rules(transaction_version=2)"), *events[1:]]) is None
    assert known(replace(_TORN, about=("p0.1-0", "T1", "p0.1")), events) is None, "the transaction before is another"


@pytest.mark.parametrize("name", ["precommitted-read", "intermediate-read", "commit-regression"])
def test_what_readers_see_of_a_late_marker_is_known_too(name: str) -> None:
    assert known(replace(_TORN, name=name), _two_transactions(*_LATE)) == "late-marker-of-the-first-protocol"
    assert known(replace(_TORN, name=name), _two_transactions(*_OWN_END)) is None


def test_without_a_late_marker_a_torn_transaction_is_news() -> None:
    assert known(_TORN, _two_transactions(*_OWN_END)) is None
    timed_out = (*_sent("p0.1-1", "T2"), Marked("p0", 2, False), Ending("T2", True))
    assert known(_TORN, _two_transactions(*timed_out)) is None, "a time-out aborts in an epoch of its own"


def test_a_late_end_is_news() -> None:
    """The producer takes another epoch when an EndTxn got no answer, so none of its own ends the next transaction."""
    for late in (
        (*_sent("p0.1-1", "T2"), Decided("p0", 1, True), Ending("T2", True)),
        (Sent("p0.1-1", "T2"), Ending("T2", True), Decided("p0", 1, True)),
    ):
        assert known(_TORN, _two_transactions(*late)) is None


def test_what_a_reader_saw_or_a_plain_producer_lost_is_never_known() -> None:
    events = _two_transactions(*_LATE)
    assert known(Anomaly("aborted-read", "r0.1 was given …", ("p9.1-1", "r0.1")), events) is None
    assert known(Anomaly("lost-write", "p9.1-1 was acknowledged …", ("p9.1-1", "p9.1")), events) is None
    assert known(replace(_TORN, name="duplicate"), events) is None


_TWICE = Anomaly("duplicate", "…", ("p0.1-7", "t-0@7", "x0.1.1-1:p0.1-7", "x0.1.1-9:p0.1-7"))


def test_an_input_that_a_deposed_coordinator_told_again_is_known() -> None:
    told = _events(Outdated("x0.1", TP, 5, 8))
    assert known(_TWICE, told) == "offsets-of-a-deposed-coordinator"
    for other in (Outdated("x0.1", TP, 8, 9), Outdated("x0.1", TP, 5, 7), Outdated("x1.1", TP, 5, 8)):
        assert known(_TWICE, _events(other)) is None
    assert known(replace(_TWICE, name="lost-write"), told) is None


_REGRESSION = Anomaly("commit-regression", "g: t-0@3 of generation 4 after 5 of generation 5", ("m1", "m1"))


def _of_a_member(*told: object, protocol: str = "consumer") -> list[Event]:
    return [Event(0.0, "r0.1", "joins", f"{protocol}, ['t']"), *_events(IsMember("m1"), *told, who="r0.1")]


_LATE_COMMIT = (Committed("g", {TP: 5}, "m1", 5), Committed("g", {TP: 3}, "m1", 4))


def test_a_late_commit_of_the_same_member_is_known_where_groups_know_member_epochs() -> None:
    told = (Assigned("g", 4, (TP,)), *_LATE_COMMIT)
    assert known(_REGRESSION, _of_a_member(*told)) == "late-commit-of-the-same-member"
    assert known(_REGRESSION, _of_a_member(*told, protocol="classic")) is None
    assert known(replace(_REGRESSION, about=("m1", "m2")), _of_a_member(*told)) is None, "another member is fenced"
    assert known(replace(_REGRESSION, what=_REGRESSION.what.replace("@3", "@2")), _of_a_member(*told)) is None


def test_a_late_commit_from_before_the_member_had_the_partition_is_news() -> None:
    assert known(_REGRESSION, _of_a_member(Assigned("g", 5, (TP,)), *_LATE_COMMIT)) is None


def test_a_late_commit_after_another_member_has_had_the_partition_is_news() -> None:
    mine, other = _of_a_member(Assigned("g", 4, (TP,))), _events(Assigned("g", 5, (TP,)), who="r1.1")
    assert known(_REGRESSION, [*mine, *other, *_events(*_LATE_COMMIT)]) is None
