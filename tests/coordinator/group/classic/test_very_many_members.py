"""A classic group of very many members: what goes through all of them is done in steps, of which nobody sees one."""

from collections.abc import Callable

import pytest

from ottla.base.limits import CLASSIC_MEMBERS_PER_STEP
from ottla.coordinator.decision import Decision, ReportFault
from ottla.coordinator.group.classic.state import GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.shard import GroupShard
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.cost import steps
from tests.coordinator.group.rig import GROUP, HOST, REBALANCE_MS, SESSION_MS, Rig, protocols

_MEMBERS = 6 * CLASSIC_MEMBERS_PER_STEP + 1
#: Lines of the coordinator that a step runs for each of its members.
_LINES_OF_EACH = 60
_DELAY_MS = 3_000


def _is_short(decide: Callable[[], Decision]) -> Decision:
    made: list[Decision] = []
    lines, _ = steps(lambda: made.append(decide()))
    assert lines < CLASSIC_MEMBERS_PER_STEP * _LINES_OF_EACH, f"{lines:,} lines of one step"
    assert len(made[0].timers) <= CLASSIC_MEMBERS_PER_STEP
    assert sum(len(told.facts) for told in made[0].facts) <= CLASSIC_MEMBERS_PER_STEP
    return made[0]


def _looked(rig: Rig, decide: Callable[[], Decision]) -> Decision:
    """What an input comes to after steps in which it looks at all members, and not carried out yet."""
    before = rig.group()
    decision, looks = _is_short(decide), 0
    while decision.is_undecided:
        looks += 1
        assert decision == Decision(rest=decision.rest, is_undecided=True)
        assert rig.shard.group(GROUP) is before
        assert decision.rest is not None
        decision = _is_short(decision.rest)
    assert looks >= _MEMBERS // CLASSIC_MEMBERS_PER_STEP
    return decision


def _carry_out(rig: Rig, decision: Decision) -> None:
    """With its rest, of which each step is short."""
    rig.run(decision._replace(rest=None))
    while decision.rest is not None:
        decision = _is_short(decision.rest)
        assert not decision.is_undecided
        rig.run(decision._replace(rest=None))


def _joining(*, instances: bool = False) -> tuple[Rig, list[str]]:
    """A group that waits for its leader's assignment; the leader first. All but the leader have sent SyncGroup."""
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=_DELAY_MS))
    tokens = [rig.join(instance=f"i{number}" if instances else None, two_steps=False) for number in range(_MEMBERS)]
    while any(rig.answer(token) is None for token in tokens):
        rig.advance(_DELAY_MS)
    members = [rig.joined(token).member_id for token in tokens]
    for number, member in enumerate(members[1:], 1):
        rig.sync(member, 1, instance=f"i{number}" if instances else None)
    return rig, members


def _stable(*, instances: bool = False) -> tuple[Rig, list[str]]:
    rig, members = _joining(instances=instances)
    rig.sync(members[0], 1, dict.fromkeys(members, b"x"), instance="i0" if instances else None)
    return rig, members


def _join(rig: Rig, token: int, member_id: str, instance_id: str | None = None) -> Callable[[], Decision]:
    request = JoinGroupRequest(
        GROUP, SESSION_MS, REBALANCE_MS, member_id, instance_id, "consumer", protocols("range"), None
    )
    return lambda: rig.shard.join_group(token, request, RequestContext("c", HOST), rig.now_ms, unique_id="again")


def _sync(rig: Rig, token: int, members: list[str], assignment: bytes = b"x") -> Callable[[], Decision]:
    given = tuple(SyncGroupRequestAssignment(member, assignment) for member in members)
    request = SyncGroupRequest(GROUP, rig.group().generation, members[0], None, "consumer", "range", given)
    return lambda: rig.shard.sync_group(token, request, rig.now_ms)


def _heartbeat_timers(rig: Rig) -> int:
    return sum(key[0] == "heartbeat" for key in rig.timers)


def test_a_rebalance_ends_in_steps() -> None:
    """One of 2,500 members took 22 ms of one turn."""
    rig, members = _stable()
    tokens = [rig.join(member) for member in members[:-1]]
    tokens.append(rig.token())
    rig.timers.clear()
    decision = _looked(rig, _join(rig, tokens[-1], members[-1]))
    assert decision.replies[0].token == tokens[0], "the leader assigns while the others hear"
    _carry_out(rig, decision)
    assert (rig.state(), rig.group().generation) == (GroupState.COMPLETING_REBALANCE, 2)
    assert [rig.joined(token).member_id for token in tokens] == members
    assert [len(rig.joined(token).members) for token in tokens] == [_MEMBERS] + [0] * (_MEMBERS - 1)
    assert [each.member_id for each in rig.joined(tokens[0]).members] == members
    assert _heartbeat_timers(rig) == _MEMBERS
    assert rig.group().subscribed_topics == frozenset({"words"})


def test_a_generation_is_written_in_steps() -> None:
    """The leader's SyncGroup of a group of 2,500 took 20 ms of one turn."""
    rig, members = _joining()
    waiting, token = set(rig.waiting), rig.token()
    rig.timers.clear()
    _carry_out(rig, _looked(rig, _sync(rig, token, members)))
    assert rig.state() is GroupState.STABLE
    assert {rig.synced(each) for each in (token, *waiting)} == {b"x"}
    assert _heartbeat_timers(rig) == _MEMBERS
    before = rig.group()
    rig.crash()
    assert {each.assignment for each in rig.group().members.values()} == {b"x"}
    assert list(rig.group().members) == list(before.members)


def test_a_generation_that_cannot_be_written_is_given_up_in_steps() -> None:
    rig, members = _joining()
    waiting, token = set(rig.waiting), rig.token()
    rig.timers.clear()
    written = _looked(rig, _sync(rig, token, members))
    assert written.records
    failed = _looked(rig, lambda: rig.shard.append_failed(written, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    _carry_out(rig, failed)
    assert rig.state() is GroupState.PREPARING_REBALANCE
    assert {rig.answer(each).error_code for each in (token, *waiting)} == {ErrorCode.NOT_COORDINATOR}
    assert {each.assignment for each in rig.group().members.values()} == {b""}
    assert _heartbeat_timers(rig) == _MEMBERS
    again = [rig.join(member) for member in members]
    assert {rig.joined(each).generation_id for each in again} == {2}


@pytest.mark.parametrize("length", [1, 500], ids=["assignments", "ids"])
def test_a_generation_that_is_too_large_is_given_up_in_steps(length: int) -> None:
    """Members with ids of 30 KB: their record was made, put into a batch and refused, in 40 ms of one turn."""
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=_DELAY_MS))
    rig.shard = GroupShard(rig.config, rig.topic_id, max_record_bytes=lambda: 100 * _MEMBERS + 100 * length)
    names = [f"{number:0{length}}" for number in range(_MEMBERS)]
    tokens = [rig.join(instance=name, two_steps=False) for name in names]
    while any(rig.answer(token) is None for token in tokens):
        rig.advance(_DELAY_MS)
    members = [rig.joined(token).member_id for token in tokens]
    given = tuple(SyncGroupRequestAssignment(member, bytes(100 // length)) for member in members)
    request = SyncGroupRequest(GROUP, 1, members[0], names[0], "consumer", "range", given)
    token = rig.token()
    decision = _looked(rig, lambda: rig.shard.sync_group(token, request, rig.now_ms))
    assert not decision.records
    (report,) = decision.effects
    assert isinstance(report, ReportFault)
    assert f"its {_MEMBERS} members take " in str(report.fault)
    _carry_out(rig, decision)
    assert rig.answer(token).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.state() is GroupState.PREPARING_REBALANCE


def test_who_does_not_join_again_is_dropped_in_steps() -> None:
    rig, members = _stable()
    token = rig.join(members[0])
    _carry_out(rig, _looked(rig, lambda: rig.shard.timer(("join", GROUP), rig.now_ms)))
    assert list(rig.group().members) == [members[0]]
    assert rig.joined(token).generation_id == 2
    assert not [key for key in rig.timers if key[0] == "heartbeat" and key[2] != members[0]]


def test_who_does_not_ask_for_its_assignment_is_dropped_in_steps() -> None:
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=_DELAY_MS))
    tokens = [rig.join(two_steps=False) for _ in range(_MEMBERS)]
    while any(rig.answer(token) is None for token in tokens):
        rig.advance(_DELAY_MS)
    _carry_out(rig, _looked(rig, lambda: rig.shard.timer(("sync", GROUP), rig.now_ms)))
    assert (rig.state(), len(rig.group().members)) == (GroupState.EMPTY, 0)
    assert rig.told.names[-1] == "group-emptied"
    assert "c-1, c-10, c-100" in rig.group().rebalance_reason
    assert rig.group().rebalance_reason.endswith(f" and {_MEMBERS - 10} more")


def test_a_member_leaves_while_all_wait_for_their_assignment_in_steps() -> None:
    rig, members = _joining()
    waiting, token = set(rig.waiting), rig.token()
    request = LeaveGroupRequest(GROUP, (MemberIdentity(members[-1]),))
    _carry_out(rig, _looked(rig, lambda: rig.shard.leave_group(token, request, rig.now_ms)))
    assert rig.state() is GroupState.PREPARING_REBALANCE
    assert rig.answer(token).members[0].error_code == ErrorCode.NONE
    errors = [ErrorCode(rig.answer(each).error_code) for each in sorted(waiting)]
    assert errors == [ErrorCode.REBALANCE_IN_PROGRESS] * (_MEMBERS - 2) + [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_static_member_comes_back_in_steps() -> None:
    rig, members = _stable(instances=True)
    token = rig.token()
    _carry_out(rig, _looked(rig, _join(rig, token, "", f"i{_MEMBERS - 1}")))
    assert rig.state() is GroupState.STABLE
    assert list(rig.group().members) == [*members[:-1], rig.joined(token).member_id]
    rig.crash()
    assert list(rig.group().members) == [*members[:-1], rig.joined(token).member_id]
