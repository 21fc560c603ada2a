"""H1: a watch waits for one change of one znode, is told once, and is gone."""

from __future__ import annotations

import pytest

from sim.zookeeper_era.tree import Change, Happened
from sim.zookeeper_era.watches import Notification, Watch, Watches

_NEW_CHILD = Change("/ids", Happened.CHILDREN)


def test_a_watch_fires_once() -> None:
    watches = Watches()
    watches.leave(Watch.CHILDREN, "/ids", 1)
    assert watches.fire([_NEW_CHILD]) == [Notification(1, _NEW_CHILD)]
    assert watches.fire([_NEW_CHILD]) == []
    watches.leave(Watch.CHILDREN, "/ids", 1)
    assert watches.fire([_NEW_CHILD]) == [Notification(1, _NEW_CHILD)]


@pytest.mark.parametrize("watch", Watch)
@pytest.mark.parametrize("happened", Happened)
def test_each_watch_hears_of_its_own_changes(watch: Watch, happened: Happened) -> None:
    fired = {
        Watch.EXISTENCE: {Happened.CREATED, Happened.DELETED, Happened.DATA},
        Watch.DATA: {Happened.DELETED, Happened.DATA},
        Watch.CHILDREN: {Happened.DELETED, Happened.CHILDREN},
    }
    watches = Watches()
    watches.leave(watch, "/a", 1)
    assert bool(watches.fire([Change("/a", happened)])) == (happened in fired[watch])
    assert watches.count() == (happened not in fired[watch])


def test_one_change_tells_everybody_who_waits_and_each_of_them_once() -> None:
    watches = Watches()
    for session in (3, 1, 2, 1):
        watches.leave(Watch.CHILDREN, "/ids", session)
    watches.leave(Watch.EXISTENCE, "/ids", 2)
    gone = Change("/ids", Happened.DELETED)
    assert watches.fire([gone]) == [Notification(session, gone) for session in (1, 2, 3)]
    assert watches.count() == 0


def test_other_znodes_and_ended_sessions_are_not_told() -> None:
    watches = Watches()
    watches.leave(Watch.CHILDREN, "/ids", 1)
    watches.leave(Watch.CHILDREN, "/ids", 2)
    assert watches.fire([Change("/owners", Happened.CHILDREN)]) == []
    watches.forget(1)
    assert watches.fire([_NEW_CHILD]) == [Notification(2, _NEW_CHILD)]
