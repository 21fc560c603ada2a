"""H1: what is measured: sums of partition-seconds, times until stable, commits of former owners."""

from __future__ import annotations

from sim.zookeeper_era.ledger import Ledger
from sim.zookeeper_era.script import Event, Kind


def _group(partitions: int, *members: str) -> Ledger:
    """These members have started at 0."""
    ledger = Ledger(partitions)
    for member in members:
        ledger.event(Event(0, Kind.START, member), 0)
    return ledger


def test_a_partition_that_nobody_reads_counts_as_long_as_somebody_could() -> None:
    ledger = Ledger(3)
    ledger.event(Event(500, Kind.START, "a"), 500)
    ledger.reads("a", (0,), 1_500)
    ledger.reads("a", (0, 1, 2), 2_500)
    ledger.end(10_000)
    assert (ledger.unread, ledger.disputed, ledger.read_by_two) == (3_000 + 2_000, 0, 0)
    assert [settled.after_ms for settled in ledger.settled] == [2_000]


def test_two_who_take_a_partition_for_theirs_are_not_two_who_read_it() -> None:
    ledger = _group(2, "a", "b")
    ledger.reads("a", (0, 1), 100)
    ledger.takes("b", (1,), 200)
    ledger.reads("a", (0,), 500)
    ledger.reads("b", (1,), 600)
    ledger.reads("a", (0, 1), 1_000)
    ledger.stops("a", 1_010)
    ledger.reads("a", (0,), 1_020)
    ledger.end(2_000)
    assert (ledger.disputed, ledger.disputes, ledger.read_by_two, ledger.unread) == (310, 2, 10, 200 + 100 + 10)
    assert ledger.reading() == {"a": {0}, "b": {1}}
    assert [settled.after_ms for settled in ledger.settled] == [1_020]


def test_every_event_has_its_time_and_one_that_was_not_over_before_the_next_has_none() -> None:
    ledger = _group(1, "a")
    ledger.reads("a", (0,), 300)
    crash, join = Event(1_000, Kind.CRASH, "b"), Event(2_000, Kind.JOIN, "c")
    ledger.event(Event(900, Kind.JOIN, "b"), 900)
    ledger.event(crash, 1_000)
    ledger.stops("a", 1_500)
    ledger.event(join, 2_000)
    ledger.reads("a", (0,), 2_700)
    ledger.end(5_000)
    assert [settled.after_ms for settled in ledger.settled] == [300, 0, None, 700]
    assert [settled.event for settled in ledger.settled[2:]] == [crash, join]


def test_the_dead_and_the_paused_read_nothing_and_a_paused_one_goes_on_where_it_was() -> None:
    ledger = _group(1, "a", "b")
    ledger.reads("a", (0,), 0)
    ledger.event(Event(1_000, Kind.PAUSE, "a"), 1_000)
    ledger.reads("b", (0,), 3_000)
    ledger.event(Event(4_000, Kind.RESUME, "a"), 4_000)
    ledger.stops("a", 4_250)
    ledger.event(Event(5_000, Kind.CRASH, "b"), 5_000)
    ledger.reads("b", (0,), 5_100)
    ledger.end(6_000)
    assert (ledger.unread, ledger.read_by_two, ledger.disputed) == (2_000 + 1_000, 250, 250)
    assert [settled.after_ms for settled in ledger.settled] == [0, 2_000, 250, None]


def test_a_commit_is_late_when_another_one_has_taken_over() -> None:
    ledger = _group(1, "a", "b")
    ledger.reads("a", (0,), 0)
    ledger.committed("a", 0, accepted=True)
    ledger.committed("b", 0, accepted=True)
    assert (ledger.late_commits_taken, ledger.late_commits_refused) == (1, 0)
    ledger.reads("b", (0,), 10)
    ledger.committed("b", 0, accepted=True)
    ledger.committed("a", 0, accepted=True)
    ledger.committed("a", 0, accepted=False)
    assert (ledger.late_commits_taken, ledger.late_commits_refused) == (2, 1)
    ledger.stops("b", 20)
    ledger.committed("a", 0, accepted=True)
    assert ledger.late_commits_taken == 2
