"""What the history is told of the real broker's commits, and of generations that go back."""

from __future__ import annotations

from ottla.base.types import TopicPartition
from ottla.testing.history import Event, check_history
from ottla.testing.history.facts import Committed, GroupBegan
from ottla.wire.errors import ErrorCode
from sim.commits import Lives, watched
from tests.coordinator.group.rig import GROUP, Rig, protocols, recover

_TP = TopicPartition("__consumer_offsets", 0)
#: Other subscriptions than the members had: the group divides its partitions again.
_OTHER = protocols("range", topics=("lines",))


class _Life:
    """A shard that is watched, through deaths of its process."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.told: list[Event] = []
        self.known = Lives()
        self.again()

    def again(self) -> None:
        """kill -9 and start."""
        rig = self.rig
        rig.shard = watched(_TP, recover(rig.config, rig.log, rig.now_ms), self._note, self.known)
        rig.timers.clear()
        rig.waiting.clear()
        for decision in rig.shard.loaded(rig.now_ms):
            rig.run(decision)

    def _note(self, what: str, text: str, fact: Committed | GroupBegan) -> None:
        self.told.append(Event(float(len(self.told)), "broker", fact))

    @property
    def facts(self) -> list[tuple[str, int]]:
        return [(type(e.fact).__name__, getattr(e.fact, "generation", 0)) for e in self.told]


def test_a_generation_that_nobody_has_synced_in_is_counted_again() -> None:
    life = _Life()
    rig = life.rig
    (leader,) = rig.stable(1)
    assert rig.commit(1, member_id=leader, generation=1) is ErrorCode.NONE
    assert rig.joined(rig.join(leader, offered=_OTHER)).generation_id == 2
    rig.join_twice(offered=_OTHER)  # before anybody has synced
    assert rig.commit(2, member_id=leader, generation=2) is ErrorCode.NONE
    life.again()
    assert rig.group().generation == 1
    assert rig.commit(3, member_id=leader, generation=1) is ErrorCode.NONE
    assert life.facts == [("Committed", 1), ("Committed", 2), ("GroupBegan", 0), ("Committed", 1)]
    assert life.told[2].fact == GroupBegan(GROUP, keeps_offsets=True)
    assert check_history(life.told) == []
    silent = [event for event in life.told if not isinstance(event.fact, GroupBegan)]
    assert {each.name for each in check_history(silent)} == {"commit-regression"}, "it would be seen"


def test_so_is_one_that_members_only_know() -> None:
    life = _Life()
    rig = life.rig
    (leader,) = rig.stable(1)
    assert rig.joined(rig.join(leader, offered=_OTHER)).generation_id == 2
    life.again()
    assert life.facts == [("GroupBegan", 0)]
    assert life.known.generations == {GROUP: 1}, "a member that tells of generation 2 now is late"
    assert rig.joined(rig.join(leader, offered=_OTHER)).generation_id == 2
    rig.complete([rig.joined(rig.join(leader, offered=_OTHER))])
    life.again()
    assert life.facts == [("GroupBegan", 0)], "told once"


def test_a_generation_that_is_in_the_log_goes_on() -> None:
    life = _Life()
    (leader,) = life.rig.stable(1)
    life.rig.commit(1, member_id=leader, generation=1)
    life.again()
    life.rig.commit(2, member_id=leader, generation=1)
    assert life.facts == [("Committed", 1), ("Committed", 1)]
