"""The tables of states of a consumer group and of its members: every step of them is taken, and no other (G19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.coordinator.group.consumer.states import MEMBER_TRANSITIONS, TRANSITIONS, GroupState, MemberState
from tests.coordinator.group.consumer.rig import FakeMember, Metadata, Rig, settle

if TYPE_CHECKING:
    from ottla.coordinator.decision import Decision


class _Watched(Rig):
    """A rig that notes which steps were taken; `Rig` itself asserts that they are in the tables."""

    def __init__(self) -> None:
        self.steps: set[tuple[GroupState, GroupState]] = set()
        self.member_steps: set[tuple[MemberState, MemberState]] = set()
        super().__init__(Metadata(words=4, lines=2))

    def run(self, decision: Decision) -> None:
        for record in decision.records:
            before = self._states()
            self.log.append(record)
            self.shard.apply(record, self.now_ms)
            self._note(before)
        super().run(decision._replace(records=()))

    def _note(self, before: tuple[GroupState | None, dict[str, MemberState]]) -> None:
        after = self._states()
        self._check_states(before, after)
        state_before = before[0] or GroupState.EMPTY
        if after[0] is not None and after[0] is not state_before:
            self.steps.add((state_before, after[0]))
        for member_id, state in after[1].items():
            was = before[1].get(member_id, state)
            if was is not state:
                self.member_steps.add((was, state))


@pytest.fixture(scope="module")
def watched() -> _Watched:
    """A group through which much has gone."""
    rig = _Watched()
    first, second = rig.joined("m1"), rig.joined("m2")
    settle(first, second)
    second.leave()
    settle(first)
    first.leave()
    third, last = rig.joined("m3"), rig.joined("m9")  # into a group that was left
    third.leave()
    last.leave()
    first, second, fourth = (rig.joined(each, "words", "lines") for each in ("m4", "m5", "m6"))
    settle(first, second, fourth)
    _to_and_fro(rig, first, second, fourth)
    return rig


def _to_and_fro(rig: Rig, first: FakeMember, second: FakeMember, third: FakeMember) -> None:
    """Members change their minds while others still have what they want."""
    for names in (("words",), ("lines",), ("words", "lines"), ("words",)):
        for member in (second, first, third):
            member.beat(subscribed_topic_names=names, rebalance_timeout_ms=60_000)
        for member in (third, second, first, second):
            member.beat()
    fifth = rig.joined("m7")
    had = second.said()
    second.beat()
    second.beat(topic_partitions=had)
    fifth.leave()
    settle(first, second, third)


def test_every_step_of_a_group_is_taken(watched: _Watched) -> None:
    expected = {(state, after) for state, following in TRANSITIONS.items() for after in following}
    assert watched.steps == expected


def test_every_step_of_a_member_is_taken(watched: _Watched) -> None:
    known = {state: after for state, after in MEMBER_TRANSITIONS.items() if state is not MemberState.UNKNOWN}
    assert watched.member_steps == {(state, after) for state, following in known.items() for after in following}


def test_the_tables_cover_every_state() -> None:
    assert set(TRANSITIONS) == set(GroupState)
    assert set(MEMBER_TRANSITIONS) == set(MemberState)
    assert MemberState.of(99) is MemberState.UNKNOWN
