"""A10: a broker's assignor rehearsed as the group would see it: a target, and steps towards it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.assign import Cluster
from ottla.assign.rehearsal import Rehearsal
from ottla.assign.server import AssignorError, GroupSpec, Partitions, UniformAssignor
from ottla.assign.server.on_paper import OnPaper
from ottla.base.types import TopicPartition

FOUR = Cluster.of({"t": 4})


def test_a10_what_another_member_owns_is_held_back_and_then_the_target_is_reached() -> None:
    group = Rehearsal(lambda: OnPaper(UniformAssignor()), FOUR)
    group.join("C0", ["t"])
    group.settle()
    group.join("C1", ["t"])
    first, second = group.settle()
    assert [len(given) for given in first.assignment.values()] == [2, 0]
    assert second.assignment["C0"] == first.assignment["C0"]
    assert second.assignment["C1"] == first.revoked["C0"]


def test_a10_a_target_that_is_none_is_told() -> None:
    class Wrong:
        name = "wrong"

        def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
            return {"C9": {}}

    group = Rehearsal(lambda: OnPaper(Wrong()), FOUR)
    group.join("C0", ["t"])
    with pytest.raises(AssignorError, match="no member of the group"):
        group.rebalance()


def test_a10_topics_that_nobody_knows_and_members_without_topics() -> None:
    group = Rehearsal(lambda: OnPaper(UniformAssignor(), {"t": b"i" * 16}), FOUR)
    group.join("C0", ["t", "missing"], holds=[TopicPartition("gone", 0)])
    group.join("C1", [])
    group.settle()
    assert group.holds == {"C0": tuple(TopicPartition("t", number) for number in range(4)), "C1": ()}
