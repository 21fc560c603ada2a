"""Assignors that fail, or whose result comes when the group is not what it was any more."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assign.server import GroupSpec, Partitions, UniformAssignor
from ottla.wire.errors import ErrorCode
from tests.coordinator.group.consumer.rig import GROUP, FakeMember, Rig


class _Broken(UniformAssignor):
    """One of Kafka's own, with a fault in it."""

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        raise IndexError("list assignment index out of range")


def test_a_fault_in_one_of_kafkas_assignors_is_a_refusal_and_the_operator_is_told() -> None:
    rig = Rig(assignors={"uniform": _Broken()})
    assert rig.join("m1").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.log == []
    (report,) = rig.faults
    assert report.what == "assignor uniform failed on epoch 2 of group readers"
    assert isinstance(report.fault, IndexError)


class _Mine:
    """Written in Python, so it is computed beside the event loop: partitions in turn to the members by their ids."""

    name = "mine"

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        ids = sorted(group.members)
        return {
            member_id: {topic_id: range(place, topic.partitions, len(ids)) for topic_id, topic in group.topics.items()}
            for place, member_id in enumerate(ids)
        }


def _finish(rig: Rig) -> None:
    """The oldest job of the assignor comes to its end."""
    job = rig.jobs.pop(0)
    rig.run(rig.shard.assigned(job, job.assignor.assign(job.spec), rig.now_ms))


def _settled(rig: Rig, *members: FakeMember) -> list[list[int]]:
    """What the members have after a while."""
    for _ in range(6):
        rig.advance(5_000)
        for member in members:
            assert not member.beat().error_code
        while rig.jobs:
            _finish(rig)
    return [member.partitions for member in members]


def _static_pair() -> tuple[Rig, FakeMember, FakeMember]:
    """`A` has all partitions, and the assignor works since `B` has joined."""
    rig = Rig(assignors={"mine": _Mine()})
    a = rig.joined("a1", instance_id="A")
    _finish(rig)
    a.beat()
    b = rig.joined("b1", instance_id="B")
    assert len(rig.jobs) == 1
    return rig, a, b


def test_a_static_member_that_comes_back_with_another_id_while_the_assignor_works_gets_its_part() -> None:
    rig, a, b = _static_pair()
    a.leave(-2)
    again = rig.joined("a2", instance_id="A")
    _finish(rig)
    assert rig.group.target_epoch == rig.group.epoch
    assert _settled(rig, again, b) == [[0, 2], [1, 3]]


def test_a_result_for_members_that_are_not_there_any_more_is_computed_anew() -> None:
    """A member takes the instance id of another: the group's epoch stays, and there is one member less."""
    rig, a, b = _static_pair()
    a.leave(-2)
    b.leave(-2)
    again = rig.joined("b1", instance_id="A")
    _finish(rig)
    assert rig.group.target_epoch < rig.group.epoch
    assert _settled(rig, again) == [[0, 1, 2, 3]]


def test_a_result_for_a_member_that_has_left_is_followed_by_another() -> None:
    rig, a, b = _static_pair()
    assert not a.leave().error_code
    _finish(rig)
    assert rig.group.target_epoch < rig.group.epoch
    assert _settled(rig, b) == [[0, 1, 2, 3]]


def test_a_result_for_a_group_that_was_deleted_meanwhile_is_none_for_the_one_that_follows() -> None:
    rig = Rig(assignors={"mine": _Mine()})
    members = [rig.joined(f"m{number}") for number in range(3)]
    while rig.jobs:
        _finish(rig)
        members[0].beat()
    rig.metadata.make("words", 6)
    members[0].beat()
    (late,) = rig.jobs
    rig.jobs.clear()
    for member in members:
        member.leave()
    rig.run(rig.shard.delete_group(rig.token(), GROUP))
    again = rig.joined("m4")
    for computed in (None, late.assignor.assign(late.spec)):
        rig.run(rig.shard.assigned(late, computed, rig.now_ms))
    assert rig.group.target_epoch < rig.group.epoch < late.epoch
    assert _settled(rig, again) == [[0, 1, 2, 3, 4, 5]]
