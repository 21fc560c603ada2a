"""A consumer group of very many members: what has to look at all of them is done in steps, other inputs wait for it."""

from collections.abc import Callable, Mapping

from ottla.assign.server import GroupSpec, Partitions
from ottla.base.limits import MEMBERS_PER_STEP
from ottla.coordinator.decision import AssignPartitions, Decision
from ottla.coordinator.group.consumer.states import GroupState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.coordinator.cost import steps
from tests.coordinator.group.consumer.rig import CLIENT, GROUP, FakeMember, Metadata, Rig, join_request

_MEMBERS = 3 * MEMBERS_PER_STEP + 1


class _InTurn:
    """Written in Python, so it is computed beside the event loop: a partition for each of the first members."""

    name = "in-turn"

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        ((topic_id, topic),) = group.topics.items()
        return {
            member_id: {topic_id: (at,)} for at, member_id in zip(range(topic.partitions), group.members, strict=False)
        }


def _rig() -> tuple[Rig, FakeMember]:
    """A group whose assignor works for its first member, and who that is."""
    rig = Rig(Metadata(words=_MEMBERS), assignors={"in-turn": _InTurn()})
    first = rig.joined("m0")
    for number in range(1, _MEMBERS):
        token = rig.token()
        request = join_request(f"m{number}", "words")
        decision = rig.shard.consumer_group_heartbeat(token, request, CLIENT, rig.now_ms, unique_id="u")
        assert decision.rest is None, "it need not look at all members"
        rig.run(decision)
    return rig, first


def _in_steps(rig: Rig, decide: Callable[[], Decision], *, lines_of_each: int) -> list[Decision]:
    """The decisions that follow from an input. Each runs so many lines of the coordinator for a member of a step."""
    made: list[Decision] = []
    while True:
        lines, _ = steps(lambda: made.append(decide()))  # noqa: B023
        assert lines < MEMBERS_PER_STEP * lines_of_each, f"{lines} lines"
        rig.run(made[-1]._replace(rest=None))
        if made[-1].rest is None:
            return made
        decide = made[-1].rest


def _computed(rig: Rig) -> tuple[AssignPartitions, Mapping[str, Partitions]]:
    job = rig.jobs.pop(0)
    return job, job.assignor.assign(job.spec)


def _all_are_looked_at(rig: Rig, first: FakeMember) -> None:
    """The assignor has computed for the first member, and is asked for all by its next heartbeat."""
    job, computed = _computed(rig)
    rig.run(rig.shard.assigned(job, computed, rig.now_ms))
    rig.advance(5_000)
    request = ConsumerGroupHeartbeatRequest(GROUP, "m0", first.epoch, topic_partitions=first.said())
    shard, token = rig.shard, rig.token()

    def beat() -> Decision:
        return shard.consumer_group_heartbeat(token, request, CLIENT, rig.now_ms, unique_id="u")

    made = _in_steps(rig, beat, lines_of_each=10)
    assert len(made) == 3 + 3 + 1, "their ids are hashed, and they are looked at"
    assert all(each.is_undecided for each in made[:-1])
    assert len(rig.jobs[0].spec.members) == _MEMBERS


def test_an_assignor_is_asked_for_very_many_members_in_steps() -> None:
    """10,000 were looked at within one heartbeat, in 25 ms of one turn."""
    _all_are_looked_at(*_rig())


def test_the_target_of_very_many_members_is_written_in_parts() -> None:
    """That of 10,000 took 27 ms of one turn, and 20,000 were more than a batch may have."""
    rig, first = _rig()
    _all_are_looked_at(rig, first)
    job, computed = _computed(rig)
    before = len(rig.log)
    made = _in_steps(rig, lambda: rig.shard.assigned(job, computed, rig.now_ms), lines_of_each=30)
    assert [len(each.records) for each in made] == [MEMBERS_PER_STEP] * 3 + [2], "the last one is the target's epoch"
    assert len(rig.log) - before == _MEMBERS + 1
    assert rig.group.target_epoch == job.epoch
    assert {member: dict(part) for member, part in rig.group.target.items()} == {
        member: {topic_id: frozenset(numbers) for topic_id, numbers in part.items()}
        for member, part in computed.items()
    }


def test_a_target_of_which_a_part_is_not_written_is_computed_anew() -> None:
    rig, first = _rig()
    _all_are_looked_at(rig, first)
    job, computed = _computed(rig)
    epoch = rig.group.target_epoch
    written = rig.shard.assigned(job, computed, rig.now_ms)
    rig.run(written._replace(rest=None))
    assert written.rest is not None
    rig.run(rig.shard.append_failed(written.rest(), ErrorCode.KAFKA_STORAGE_ERROR))
    assert rig.group.target_epoch == epoch < rig.group.epoch
    assert rig.group.state is GroupState.ASSIGNING
    rig.advance(5_000)
    first.beat()
    job, computed = _computed(rig)
    rig.run(rig.shard.assigned(job, computed, rig.now_ms))
    assert rig.group.target_epoch == rig.group.epoch
    assert len(rig.group.target) == _MEMBERS
