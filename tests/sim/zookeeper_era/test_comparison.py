"""H1: both ways on one script: what they share, what the herd costs, and which of them has two minds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.assign.range import RangeAssignor
from ottla.assign.types import Cluster, Subscription
from sim.zookeeper_era import Figures, Numbers, compare
from sim.zookeeper_era.consumer import share
from sim.zookeeper_era.script import Kind, Script
from tests.house.tree import ROOT

_SEEDS = range(25)


def _ways(numbers: Numbers, seed: int) -> tuple[Figures, Figures]:
    found = compare(numbers, seed)
    return found.zookeeper, found.coordinator


def _calm(members: int = 3, partitions: int = 12, joins: int = 0, leaves: int = 0) -> Numbers:
    return Numbers(members=members, partitions=partitions, joins=joins, leaves=leaves, crashes=0)


@given(st.integers(1, 60), st.integers(1, 25))
def test_each_consumer_computes_of_its_own_what_the_range_assignor_gives(partitions: int, count: int) -> None:
    members = tuple(f"member-{number:03}" for number in range(count))
    given_by_one = RangeAssignor().assign(
        Cluster.of({"words": partitions}), {member: Subscription(("words",)) for member in members}
    )
    for member in members:
        by_itself = share(tuple(range(partitions)), members[::-1], member)
        assert by_itself == tuple(each.partition for each in given_by_one[member].partitions)


def test_h1_one_consumer_owns_everything() -> None:
    for way in _ways(_calm(members=1, partitions=7), seed=3):
        assert way.reading == {"member-001": frozenset(range(7))}
        assert (way.notifications, way.failed_attempts, way.disputes) == (0, 0, 0)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    members=st.integers(1, 5),
    partitions=st.integers(1, 12),
    joins=st.integers(0, 2),
    data=st.data(),
)
def test_h1_both_ways_end_with_what_range_says_whatever_happened(
    seed: int, members: int, partitions: int, joins: int, data: st.DataObject
) -> None:
    leaves = data.draw(st.integers(0, min(1, members + joins - 1)))
    crashes = data.draw(st.integers(0, min(1, members + joins - 1 - leaves)))
    numbers = Numbers(members=members, partitions=partitions, joins=joins, leaves=leaves, crashes=crashes)
    old, new = _ways(numbers, seed)
    live = tuple(old.reading)
    wanted = {member: frozenset(share(tuple(range(partitions)), live, member)) for member in live}
    assert len(live) == members + joins - leaves - crashes
    assert new.reading == wanted
    assert new.settled[-1].after_ms is not None
    # An old consumer that has given up waits for a change that may never come; the others have what is theirs.
    assert all(old.reading[member] in (wanted[member], frozenset()) for member in live)
    assert old.given_up or old.reading == wanted
    # Ephemeral nodes hold: two may take a partition for theirs, but as long as sessions live one of them reads it.
    assert (old.read_by_two_s, new.read_by_two_s, new.disputed_s) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_h1_a_crash_is_noticed_after_the_session(seed: int) -> None:
    numbers = Numbers(members=3, partitions=12, joins=0, leaves=0, crashes=1)
    for way in _ways(numbers, seed):
        started, crashed = way.settled
        assert (started.event.kind, crashed.event.kind) == (Kind.START, Kind.CRASH)
        assert crashed.after_ms is not None
        # Six seconds since the last sign of life, which is at most two seconds old.
        assert crashed.after_ms > 3_900
        assert sum(map(len, way.reading.values())) == 12
    left = compare(Numbers(members=3, partitions=12, joins=0, leaves=1, crashes=0), seed)
    assert (left.coordinator.settled[1].after_ms or 0) < 3_900


@pytest.mark.parametrize("members", [2, 5, 10])
def test_h1_the_herd_grows_with_the_members(members: int) -> None:
    """A change tells every member, and every member then reads every other one."""
    before, after = (compare(_calm(members, joins=joins), seed=7).zookeeper for joins in (0, 1))
    assert after.notifications - before.notifications == members
    assert after.rebalances - before.rebalances == members + 1
    read = after.requests_by_kind["read"] - before.requests_by_kind["read"]
    assert read > members * members
    left = compare(_calm(members, leaves=1), seed=7).zookeeper
    assert left.notifications - before.notifications == members - 1


def test_h1_members_that_come_together_are_one_generation_of_the_coordinator_and_a_herd_without_it() -> None:
    old, new = _ways(_calm(members=10, partitions=20), seed=1)
    assert (new.rebalances, new.notifications) == (1, 0)
    assert old.rebalances > 10
    assert old.notifications > 10
    assert new.requests == 10 * 4  # a member without an id joins twice, then SyncGroup and OffsetFetch


def test_h1_split_brain_is_seen_over_zookeeper_and_never_with_the_coordinator() -> None:
    found = [compare(Numbers(), seed) for seed in _SEEDS]
    assert any(each.zookeeper.disputes for each in found)
    assert any(each.zookeeper.failed_attempts for each in found)
    assert not any(each.coordinator.disputes or each.coordinator.disputed_s for each in found)
    assert not any(each.coordinator.given_up or each.coordinator.read_by_two_s for each in found)


def test_h1_a_former_owner_commits_over_zookeeper_and_is_refused_by_the_coordinator() -> None:
    found = [compare(Numbers(joins=0, leaves=0, crashes=0, pauses=2), seed) for seed in _SEEDS[:10]]
    assert any(each.zookeeper.late_commits_taken for each in found)
    assert any(each.coordinator.late_commits_refused for each in found)
    assert not any(each.zookeeper.late_commits_refused for each in found)
    assert not any(each.coordinator.late_commits_taken for each in found)


def test_h1_a_large_group_over_zookeeper_gives_up_and_with_the_coordinator_does_not() -> None:
    old, new = _ways(Numbers(members=50, partitions=200, joins=0, leaves=0, crashes=0), seed=1)
    assert old.given_up > 0
    assert new.given_up == 0
    assert new.settled[0].after_ms is not None
    assert old.requests > 20 * new.requests


def test_h1_both_ways_live_through_the_same_events() -> None:
    found = compare(Numbers(pauses=1), seed=4)
    events = [event for event in found.script.events if event.kind is not Kind.START]
    for way in (found.zookeeper, found.coordinator):
        assert [settled.event for settled in way.settled[1:]] == events
    assert found.script == Script.drawn(Numbers(pauses=1), 4)


_PRINTED = """
from sim.zookeeper_era import Numbers, compare
found = compare(Numbers(pauses=1), 5)
print(found.zookeeper.requests_by_kind, found.zookeeper.settled, found.zookeeper.disputed_s)
print(found.coordinator.requests_by_kind, found.coordinator.settled, found.coordinator.unread_s)
"""


def test_one_seed_is_one_history_in_any_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", _PRINTED],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert compare(Numbers(), 5) != compare(Numbers(), 6)
