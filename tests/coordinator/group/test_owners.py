"""A partition is with one member at a time, whichever protocols its group changes between, and in the end with one.

That is more than a look into the coordinator can show (`consumer/rig.py` has that): a member reads on until it is told.
OTTLA_GROUP_SEEDS=2000 runs more histories, OTTLA_GROUP_SEEDS=17-18 one.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from tests.coordinator.group.consumer.rig import CONFIG, Metadata, Rig
from tests.coordinator.group.honest import SESSION_MS, TOPIC, Classic, Consumer, Honest

_PARTITIONS = 6
_STEPS = 40
_HERE = 300
#: Of one run of these tests, for processes beside each other.
_PARTS = 4
_MEMBERS = 4
_CONFIG = replace(CONFIG, group_initial_rebalance_delay_ms=0)


class _History:
    """Members come, take their steps, leave and die; none is silent for a whole session. The coordinator dies, too."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rig = Rig(Metadata(**{TOPIC: _PARTITIONS}), _CONFIG)
        self.strategy = self.rng.choice(("range", "cooperative-sticky"))
        self.members: list[Honest] = []
        self.done: list[str] = []
        self._left_ms = SESSION_MS // 2

    @property
    def living(self) -> list[Honest]:
        return [member for member in self.members if member.lives]

    def run(self) -> None:
        for _ in range(_STEPS):
            self._one()
            owners = [(number, member.name) for member in self.living for number in sorted(member.owned)]
            numbers = [number for number, _ in owners]
            assert len(numbers) == len(set(numbers)), f"two at once: {sorted(owners)}; {' '.join(self.done)}"
        for _ in range(3 * SESSION_MS // 1_000):
            self.rig.advance(1_000)
            for member in self.living:
                member.step()
        if self.living:
            has = {member.name: sorted(member.owned) for member in self.living}
            found = sorted(number for numbers in has.values() for number in numbers)
            assert found == list(range(_PARTITIONS)), f"{has}; {' '.join(self.done)}"

    def _one(self) -> None:
        draw, living = self.rng.random(), self.living
        if not living or (draw < 0.12 and len(living) < _MEMBERS):
            self._comes()
        elif draw < 0.18:
            self._with("leaves", self.rng.choice(living)).leave()
        elif draw < 0.20:
            self._with("dies", self.rng.choice(living)).die()
        elif draw < 0.22:
            self.done.append("the coordinator crashes")
            self.rig.crash()
            for member in self.living:
                member.lost_connection()
        elif draw < 0.28:
            passes_ms = min(self._left_ms, self.rng.choice((100, 1_000, 3_000)))
            self._left_ms -= passes_ms
            self.rig.advance(passes_ms)
        else:
            self._with("", self.rng.choice(living)).step()

    def _comes(self) -> None:
        instance_id = self.rng.choice((None, "i1", "i2", "i1"))
        if any(member.instance_id == instance_id for member in self.living):
            instance_id = None
        name = f"{len(self.members)}"
        if self.rng.random() < 0.55:
            come: Honest = Classic(
                self.rig, f"classic{name}", instance_id, self.rng, self.strategy, partitions=_PARTITIONS
            )
        else:
            come = Consumer(self.rig, f"consumer{name}", instance_id, self.rng)
        self.members.append(self._with(f"comes as {instance_id}", come))

    def _with(self, what: str, member: Honest) -> Honest:
        self.done.append(f"{member.name} {what}".strip())
        return member


def _seeds() -> range:
    first, _, last = os.environ.get("OTTLA_GROUP_SEEDS", f"0-{_HERE}").rpartition("-")
    return range(int(first or 0), int(last))


@pytest.mark.parametrize("part", range(_PARTS))
def test_g21_no_partition_is_with_two_members_and_none_is_lost(part: int) -> None:
    for seed in _seeds()[part::_PARTS]:
        _History(seed).run()


@pytest.mark.parametrize("seed", [401, 643, 1828, 2131])
def test_g21_histories_in_which_one_was_lost_or_doubled(seed: int) -> None:
    _History(seed).run()
