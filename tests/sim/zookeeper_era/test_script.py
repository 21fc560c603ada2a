"""H1: the script: every number of it happens, somebody always stays, and what cannot be is told in a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.zookeeper_era.script import Kind, Numbers, Script, ScriptError


@given(
    seed=st.integers(),
    members=st.integers(1, 8),
    joins=st.integers(0, 5),
    pauses=st.integers(0, 3),
    data=st.data(),
)
def test_all_that_was_asked_for_happens_and_the_last_member_stays(
    seed: int, members: int, joins: int, pauses: int, data: st.DataObject
) -> None:
    leaves = data.draw(st.integers(0, members + joins - 1))
    crashes = data.draw(st.integers(0, members + joins - 1 - leaves))
    numbers = Numbers(members=members, joins=joins, leaves=leaves, crashes=crashes, pauses=pauses)
    script = Script.drawn(numbers, seed)
    kinds = [event.kind for event in script.events]
    assert [kinds.count(kind) for kind in Kind] == [members, joins, leaves, crashes, pauses, pauses]
    assert [event.at_ms for event in script.events] == sorted(event.at_ms for event in script.events)
    assert script.until_ms > script.events[-1].at_ms
    live: set[str] = set()
    paused: set[str] = set()
    for event in script.events:
        if event.kind in (Kind.START, Kind.JOIN):
            assert event.member not in live
            live.add(event.member)
            continue
        assert event.member in live
        match event.kind:
            case Kind.PAUSE:
                paused.add(event.member)
            case Kind.RESUME:
                paused.remove(event.member)
            case _:
                live.remove(event.member)
        assert live
    assert not paused
    assert Script.drawn(numbers, seed) == script


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        (Numbers(members=0), "the number of members has to be between 1 and 200, not 0"),
        (Numbers(members=201), "the number of members has to be between 1 and 200, not 201"),
        (Numbers(partitions=0), "the number of partitions has to be between 1 and 1000, not 0"),
        (Numbers(joins=-1), "the number of joins has to be between 0 and 200, not -1"),
        (Numbers(leaves=-1), "the number of leaves has to be"),
        (Numbers(crashes=-1), "the number of crashes has to be"),
        (Numbers(pauses=201), "the number of pauses has to be"),
        (Numbers(members=150, joins=51), "150 members and 51 joins are 201 members; at most 200 are modelled"),
        (Numbers(members=1, joins=1, leaves=1, crashes=1), "1 leave and 1 crash, and only 2 members"),
    ],
)
def test_numbers_that_make_no_script_are_refused(numbers: Numbers, sentence: str) -> None:
    with pytest.raises(ScriptError, match=sentence):
        Script.drawn(numbers, 1)
