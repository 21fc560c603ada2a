"""JoinGroup: ids, refusals, the vote, the rebalance's clock."""

from __future__ import annotations

import pytest

from ottla.coordinator.group.classic.state import GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.wire.errors import ErrorCode
from ottla.wire.offsets_records import GroupMetadataValue, decode_group_metadata_value
from tests.coordinator.group.rig import REBALANCE_MS, SESSION_MS, START_MS, Rig, protocols


def test_g3_first_join_hands_out_a_member_id_and_writes_that_the_group_exists() -> None:
    rig = Rig()
    answer = rig.answer(rig.join())
    assert (answer.error_code, answer.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-1")
    assert rig.state() is GroupState.EMPTY
    (record,) = rig.records
    assert record.key == b"\x00\x02\x00\x07readers"
    assert record.value is not None
    assert decode_group_metadata_value(record.value) == GroupMetadataValue(current_state_timestamp_ms=START_MS)


def test_g3_an_old_client_joins_in_one_step() -> None:
    rig = Rig()
    token = rig.join(two_steps=False)
    rig.advance(0)
    answer = rig.joined(token)
    assert (answer.generation_id, answer.leader, answer.member_id) == (1, "c-1", "c-1")
    assert [m.member_id for m in answer.members] == ["c-1"]


def test_g3_a_member_id_that_was_handed_out_expires() -> None:
    rig = Rig()
    rig.join()
    rig.advance(SESSION_MS)
    assert rig.group().pending_members == frozenset()
    assert rig.answer(rig.join("c-1")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_g3_so_many_member_ids_are_handed_out_at_a_time() -> None:
    """Nothing bounded them: `group.max.size` does not count them, as in Kafka."""
    rig = Rig(GroupConfig(max_pending_members=2))
    assert [rig.answer(rig.join()).error_code for _ in range(3)] == [
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ]
    rig.join("c-1")  # who has one joins, and makes room for another
    assert rig.answer(rig.join()).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert rig.answer(rig.join()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.advance(SESSION_MS)
    assert rig.answer(rig.join()).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_g3_a_rebalance_waits_for_a_member_id_that_was_handed_out_until_it_expires() -> None:
    rig = Rig()
    (leader,) = rig.stable(1)
    rig.join()
    token = rig.join(leader)
    rig.advance(SESSION_MS - 1)
    assert rig.answer(token) is None
    rig.advance(1)
    assert rig.joined(token).generation_id == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"offered": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_g3_refusals(options: dict[str, str], error: ErrorCode) -> None:
    rig = Rig()
    assert rig.answer(rig.join(**options)).error_code == error  # type: ignore[arg-type]


def test_g3_unknown_members_of_a_known_group_are_refused() -> None:
    rig = Rig()
    rig.stable(1)
    assert rig.answer(rig.join("stranger")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.state() is GroupState.STABLE


def test_g3_a_full_group_takes_nobody_else() -> None:
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=0, group_max_size=2))
    rig.stable(2)
    answer = rig.answer(rig.join())
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert rig.state() is GroupState.STABLE


def test_g3_in_a_rebalance_the_last_to_come_back_find_the_group_full() -> None:
    rig = Rig()
    leader, second, third = rig.stable(3)
    rig.config = GroupConfig(group_initial_rebalance_delay_ms=0, group_max_size=2)
    rig.crash()
    assert rig.state() is GroupState.PREPARING_REBALANCE
    tokens = [rig.join(leader), rig.join(second)]
    assert rig.answer(rig.join(third)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    rig.advance(REBALANCE_MS)
    assert {rig.joined(token).generation_id for token in tokens} == {2}


def test_g6_a_member_with_nothing_in_common_is_refused() -> None:
    rig = Rig()
    rig.stable(1)
    refused = rig.answer(rig.join(offered=protocols("mine")))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.answer(rig.join(protocol_type="connect")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.state() is GroupState.STABLE


def test_g6_most_votes_among_the_protocols_all_support() -> None:
    rig = Rig()
    offers = [
        protocols("sticky", "range", "roundrobin"),
        protocols("roundrobin", "range"),
        protocols("range", "roundrobin", "mine"),
    ]
    tokens = [rig.join_twice(offered=offered) for offered in offers]
    rig.advance(0)
    # The first one's favourite is not a candidate, so it votes for range: two to one.
    assert [rig.joined(token).protocol_name for token in tokens] == ["range"] * 3


def test_g4_only_the_leader_is_told_the_members() -> None:
    rig = Rig()
    tokens = [rig.join_twice(offered=protocols("range", topics=(topic,))) for topic in ("a", "b")]
    rig.advance(0)
    leader, follower = (rig.joined(token) for token in tokens)
    assert leader.leader == follower.leader == leader.member_id
    assert [(m.member_id, m.metadata) for m in leader.members] == [
        (leader.member_id, protocols("range", topics=("a",))[0].metadata),
        (follower.member_id, protocols("range", topics=("b",))[0].metadata),
    ]
    assert follower.members == ()


def test_g5_the_initial_delay_grows_with_each_member_that_comes() -> None:
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=3_000))
    first = rig.join(two_steps=False)
    rig.advance(2_999)
    second = rig.join(two_steps=False)
    rig.advance(1)
    assert rig.answer(first) is None
    rig.advance(2_999)
    assert rig.answer(first) is None
    rig.advance(1)
    assert rig.joined(first).generation_id == rig.joined(second).generation_id == 1


def test_g5_the_initial_delay_ends_at_the_rebalance_timeout() -> None:
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=3_000))
    tokens = [rig.join(two_steps=False, rebalance_ms=7_000)]
    for _ in range(4):
        rig.advance(1_700)
        tokens.append(rig.join(two_steps=False, rebalance_ms=7_000))
    rig.advance(199)
    assert rig.answer(tokens[0]) is None
    rig.advance(1)
    assert {rig.joined(token).generation_id for token in tokens} == {1}


def test_g5_members_that_do_not_rejoin_in_time_are_dropped() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    token = rig.join(leader)
    while rig.timers[("join", "readers")] > rig.now_ms + 5_000:
        rig.advance(5_000)  # the follower heartbeats but does not rejoin
        assert rig.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.answer(token) is None
    rig.advance(5_000)
    assert [m.member_id for m in rig.joined(token).members] == [leader]
    assert rig.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_g4_the_first_of_those_who_rejoin_leads_when_the_leader_does_not() -> None:
    rig = Rig()
    leader, second, third = rig.stable(3)
    tokens = [rig.join(third, offered=protocols("range", topics=("new",))), rig.join(second)]
    rig.advance(REBALANCE_MS)
    assert {rig.joined(token).leader for token in tokens} == {second}
    assert leader not in rig.group().members


def test_g5_version_0_uses_the_session_timeout_for_rebalances() -> None:
    rig = Rig()
    rig.join(two_steps=False, rebalance_ms=-1)
    assert rig.group().members["c-1"].rebalance_timeout_ms == SESSION_MS


def test_a_member_that_asks_again_while_it_waits_is_counted_once() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    first = rig.join(leader)
    second = rig.join(leader)
    assert rig.answer(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    rig.join(follower)
    assert rig.joined(second).generation_id == 2


def test_a_new_member_whose_client_is_gone_is_forgotten_after_five_minutes() -> None:
    rig = Rig()
    leader, _ = rig.stable(2, rebalance_ms=1_000_000, session_ms=1_000_000)
    token = rig.join_twice(rebalance_ms=1_000_000)
    rig.advance(299_999)
    assert rig.answer(token) is None
    rig.advance(1)
    assert rig.answer(token).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.state() is GroupState.PREPARING_REBALANCE
    assert leader in rig.group().members


def test_g11_a_follower_that_rejoins_unchanged_is_given_the_same_generation() -> None:
    rig = Rig()
    _, follower = rig.stable(2)
    answer = rig.joined(rig.join(follower))
    assert (answer.generation_id, answer.members) == (1, ())
    assert rig.state() is GroupState.STABLE


@pytest.mark.parametrize("who", [0, 1])
def test_g11_the_leader_rejoining_or_a_changed_subscription_rebalances(who: int) -> None:
    rig = Rig()
    members = rig.stable(2)
    offered = protocols("range", topics=("words", "more")) if who == 1 else protocols("range")
    first = rig.join(members[who], offered=offered)
    assert rig.state() is GroupState.PREPARING_REBALANCE
    assert rig.heartbeat(members[1 - who], 1) is ErrorCode.REBALANCE_IN_PROGRESS
    second = rig.join(members[1 - who])
    assert {rig.joined(first).generation_id, rig.joined(second).generation_id} == {2}


def test_a_lost_answer_is_given_again_before_the_assignment_is_there() -> None:
    rig = Rig()
    token = rig.join_twice()
    rig.advance(0)
    answer = rig.joined(token)
    assert rig.joined(rig.join(answer.member_id)) == answer


def test_a_changed_subscription_before_the_assignment_is_there_starts_again() -> None:
    rig = Rig()
    tokens = [rig.join_twice(), rig.join_twice()]
    rig.advance(0)
    leader, follower = (rig.joined(token).member_id for token in tokens)
    waiting = rig.sync(follower, 1)
    rig.join(leader, offered=protocols("range", topics=("other",)))
    assert rig.answer(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.state() is GroupState.PREPARING_REBALANCE


def test_g3_a_group_that_only_waits_for_a_handed_out_id_takes_new_members() -> None:
    """All members were expelled, the rebalance waits for a pending id: as in Kafka, nobody's protocols contradict."""
    rig = Rig()
    _, second = rig.stable(2)
    rig.advance(10)
    assert rig.heartbeat(second, rig.group().generation) is ErrorCode.NONE
    rig.join()  # an id is handed out, and nobody comes back with it yet
    rig.advance(SESSION_MS - 10)
    assert (rig.state(), set(rig.group().members)) == (GroupState.PREPARING_REBALANCE, {second})
    rig.join()  # another one, which is still awaited when the last member is expelled
    rig.advance(10)
    assert (rig.state(), set(rig.group().members)) == (GroupState.PREPARING_REBALANCE, set())
    assert rig.answer(rig.join()).error_code == ErrorCode.MEMBER_ID_REQUIRED
