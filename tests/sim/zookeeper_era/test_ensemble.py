"""H1: servers that are behind, sessions that end, and one order of writes for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.zookeeper_era.ensemble import Create, Delete, EndSession, Ensemble, SessionExpiredError, SetData, Write
from sim.zookeeper_era.tree import Change, Happened, NodeExistsError, NoNodeError
from sim.zookeeper_era.watches import Notification


def test_a_follower_answers_from_an_older_tree() -> None:
    """What makes split brain possible: at one moment two clients see two groups."""
    ensemble = Ensemble.of(3, "/ids")
    session = ensemble.open_session(6_000, 0)
    ensemble.propose(session, Create("/ids/one", ephemeral=True), 1)
    ensemble.catch_up(1, 1)
    assert [server.children("/ids", session) for server in ensemble.servers] == [("one",), ("one",), ()]
    ensemble.catch_up(2, 1)
    assert ensemble.servers[2].children("/ids", session) == ("one",)


def test_a_watch_fires_where_it_was_left_when_that_server_applies_the_change() -> None:
    ensemble = Ensemble.of(2, "/ids")
    here, there = (ensemble.open_session(6_000, 0) for _ in range(2))
    assert ensemble.leader.children("/ids", here, watch=True) == ()
    assert ensemble.servers[1].children("/ids", there, watch=True) == ()
    changed = Change("/ids", Happened.CHILDREN)
    assert ensemble.propose(here, Create("/ids/x"), 1).notifications == (Notification(here, changed),)
    (applied,) = ensemble.catch_up(1, 1)
    assert applied.notifications == (Notification(there, changed),)
    assert ensemble.propose(here, Create("/ids/y"), 2).notifications == ()


def test_existence_is_watched_before_there_is_anything_and_what_is_missing_leaves_no_other_watch() -> None:
    ensemble = Ensemble.of(1)
    session = ensemble.open_session(6_000, 0)
    assert not ensemble.leader.exists("/a", session, watch=True)
    for read in (ensemble.leader.get, ensemble.leader.children):
        with pytest.raises(NoNodeError):
            read("/a", session, watch=True)
    created = Change("/a", Happened.CREATED)
    assert ensemble.propose(session, Create("/a"), 1).notifications == (Notification(session, created),)
    assert ensemble.propose(session, SetData("/a", "x"), 1).notifications == ()
    assert ensemble.leader.get("/a", session, watch=True).data == "x"
    deleted = Change("/a", Happened.DELETED)
    assert ensemble.propose(session, Delete("/a"), 1).notifications == (Notification(session, deleted),)


def test_a_session_lasts_as_long_as_it_is_heard_of_and_its_ephemerals_with_it() -> None:
    ensemble = Ensemble.of(2, "/ids")
    silent, heard = ensemble.open_session(6_000, 0), ensemble.open_session(6_000, 0)
    for session in (silent, heard):
        ensemble.propose(session, Create(f"/ids/{session}", ephemeral=True), 0)
        ensemble.propose(session, Create(f"/stays-{session}"), 0)
    ensemble.touch(heard, 4_000)
    assert ensemble.tick(5_999) == []
    (over,) = ensemble.tick(6_000)
    assert over.entry.session == silent
    assert ensemble.leader.children("/ids", heard) == (str(heard),)
    assert ensemble.leader.exists(f"/stays-{silent}", heard)
    with pytest.raises(SessionExpiredError):
        ensemble.propose(silent, Create("/ids/again"), 6_001)
    with pytest.raises(SessionExpiredError):
        ensemble.touch(silent, 6_001)
    ensemble.catch_up(1, len(ensemble.log))
    assert ensemble.servers[1].children("/ids", heard) == (str(heard),)


def test_a_session_that_is_over_is_told_nothing_more() -> None:
    ensemble = Ensemble.of(1, "/ids")
    leaving, staying = (ensemble.open_session(6_000, 0) for _ in range(2))
    ensemble.propose(leaving, Create("/ids/leaving", ephemeral=True), 0)
    for session in (leaving, staying):
        ensemble.leader.children("/ids", session, watch=True)
    ended = ensemble.propose(leaving, EndSession(), 1)
    assert [notification.session for notification in ended.notifications] == [staying]


def test_of_two_who_claim_one_znode_one_is_refused_on_every_server() -> None:
    ensemble = Ensemble.of(2, "/owners")
    one, two = (ensemble.open_session(6_000, 0) for _ in range(2))
    assert ensemble.propose(one, Create("/owners/0", "one", ephemeral=True), 0).refused is None
    assert isinstance(ensemble.propose(two, Create("/owners/0", "two", ephemeral=True), 0).refused, NodeExistsError)
    assert [applied.refused is None for applied in ensemble.catch_up(1, 2)] == [True, False]
    assert ensemble.servers[1].get("/owners/0", one).data == "one"


_PATHS = st.sampled_from(["/a", "/a/x", "/a/y", "/b"])
_WRITES: st.SearchStrategy[Write] = st.one_of(
    st.builds(Create, _PATHS, st.sampled_from(["", "data"]), st.booleans()),
    st.builds(SetData, _PATHS, st.sampled_from(["one", "two"]), st.integers(-1, 1)),
    st.builds(Delete, _PATHS, st.integers(-1, 1)),
    st.builds(EndSession),
)


@given(st.lists(st.tuples(st.integers(1, 3), _WRITES, st.integers(0, 3)), max_size=30))
def test_followers_go_the_leaders_way_however_far_they_are_behind(steps: list[tuple[int, Write, int]]) -> None:
    ensemble = Ensemble.of(3)
    for _ in range(3):
        ensemble.open_session(6_000, 0)
    seen: list[dict[str, tuple[object, ...]]] = [_whole(ensemble, 0)]
    for session, write, follower in steps:
        try:
            ensemble.propose(session, write, 0)
            seen.append(_whole(ensemble, 0))
        except SessionExpiredError:
            assert _whole(ensemble, 0) == seen[-1]
        if follower in (1, 2):
            ensemble.catch_up(follower, len(ensemble.log))
        for number in (1, 2):
            assert _whole(ensemble, number) == seen[ensemble.servers[number].applied]


def _whole(ensemble: Ensemble, number: int) -> dict[str, tuple[object, ...]]:
    tree = ensemble.servers[number].tree
    return {
        path: (tree.get(path), tree.children(path)) for path in ("/", "/a", "/a/x", "/a/y", "/b") if tree.exists(path)
    }
