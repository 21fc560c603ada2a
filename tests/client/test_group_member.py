"""SPEC G3–G12: what each answer of the coordinator means to a member."""

import itertools

import pytest

from ottla.client.core.group_member import (
    MEANING,
    NO_GENERATION,
    Call,
    GroupMember,
    MemberState,
    Next,
    heartbeat_pauses_s,
)
from ottla.wire.errors import ErrorCode


def stable() -> GroupMember:
    member = GroupMember("g", None)
    member.joining()
    member.joined("me", 4, "range", "me")
    member.synced()
    return member


def test_a_new_member_wants_to_join() -> None:
    assert GroupMember("g", None).rejoin_reason is not None


def test_g4_the_leader_is_who_the_coordinator_names() -> None:
    assert stable().is_leader
    member = GroupMember("g", None)
    member.joined("me", 4, "range", "other")
    assert not member.is_leader


def test_g3_a_member_id_that_is_required_is_taken() -> None:
    member = GroupMember("g", None)
    assert member.answered(Call.JOIN, ErrorCode.MEMBER_ID_REQUIRED, "given") is Next.REJOIN
    assert member.member_id == "given"


def test_g8_a_heartbeat_that_hears_of_a_rebalance_makes_the_next_poll_join() -> None:
    member = stable()
    assert member.answered(Call.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS) is Next.REJOIN
    assert member.rejoin_reason is not None
    assert (member.generation_id, member.member_id, member.state) == (4, "me", MemberState.STABLE)


@pytest.mark.parametrize("call", [Call.SYNC, Call.HEARTBEAT, Call.COMMIT, Call.JOIN])
def test_g12_an_expelled_member_starts_over(call: Call) -> None:
    member = stable()
    assert member.answered(call, ErrorCode.UNKNOWN_MEMBER_ID) is Next.START_OVER
    assert (member.generation_id, member.member_id, member.state) == (NO_GENERATION, "", MemberState.UNJOINED)


def test_g12_an_old_generation_keeps_its_member_id() -> None:
    member = stable()
    assert member.answered(Call.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION) is Next.START_OVER
    assert (member.generation_id, member.member_id) == (NO_GENERATION, "me")


@pytest.mark.parametrize("call", list(Call))
def test_g15_being_fenced_is_final(call: Call) -> None:
    assert stable().answered(call, ErrorCode.FENCED_INSTANCE_ID) is Next.FAIL


@pytest.mark.parametrize(("call", "code"), list(itertools.product(Call, ErrorCode)), ids=lambda part: part.name)
def test_every_call_and_answer_leaves_a_consistent_member(call: Call, code: ErrorCode) -> None:
    member = stable()
    meaning = member.answered(call, code, "given")
    assert meaning is MEANING[call].get(code, Next.FAIL)
    if meaning is Next.START_OVER:
        assert (member.state, member.generation_id) == (MemberState.UNJOINED, NO_GENERATION)
        assert member.rejoin_reason is not None
    else:
        assert (member.state, member.generation_id) == (MemberState.STABLE, 4)


def test_a_new_generation_is_asked_often_at_first() -> None:
    assert list(itertools.islice(heartbeat_pauses_s(3_000), 8)) == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0]
    assert list(itertools.islice(heartbeat_pauses_s(40), 2)) == [0.04, 0.04]
