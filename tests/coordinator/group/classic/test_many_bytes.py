"""A classic group whose members say much of themselves: what a generation costs, and what it may have."""

import pytest

from ottla.base.limits import MAX_GROUP_METADATA_BYTES, MAX_GROUP_TOPICS
from ottla.coordinator.decision import ReportFault
from ottla.coordinator.group.classic.state import GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.shard import GroupShard
from ottla.wire import schema
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequestProtocol
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.group.rig import GROUP, SESSION_MS, Rig, protocols
from tests.counted_calls import calls

#: How long a group waits for its first members.
_DELAY_MS = 1_000


def _of_topics(count: int, member: int = 0) -> tuple[JoinGroupRequestProtocol, ...]:
    return protocols("range", topics=(f"only of {member}", *(f"topic {number:04}" for number in range(count))))


def _forming(offered: list[tuple[JoinGroupRequestProtocol, ...]]) -> tuple[Rig, list[int]]:
    """A group whose members have all joined, and wait for its first generation; the tokens of their joins."""
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=_DELAY_MS))
    return rig, [rig.join(offered=each, two_steps=False) for each in offered]


def test_a_generation_reads_no_subscription_that_a_join_has_read() -> None:
    """Of 1,000 members with 300 topics each it read 300,000 names in one turn."""
    rig, tokens = _forming([_of_topics(30, member) for member in range(100)])
    assert calls(lambda: rig.advance(2 * _DELAY_MS), schema.decode.__code__) == 0, "at once"
    assert rig.joined(tokens[0]).generation_id == 1
    assert rig.group().subscribed_topics is not None
    assert len(rig.group().subscribed_topics or ()) == 130
    (last,) = [each.member_id for each in rig.group().members.values() if "99" in str(each.metadata("range"))]
    rig.leave(last)
    for member_id in list(rig.group().members):
        rig.join(member_id, offered=_of_topics(30, 1))
    assert rig.group().subscribed_topics == frozenset({"only of 1", *(f"topic {number:04}" for number in range(30))})


def test_topics_that_are_very_many_are_not_known_and_not_kept() -> None:
    members = MAX_GROUP_TOPICS // 25_000 + 1
    offered = [protocols("range", topics=tuple(f"{m}-{n}" for n in range(25_000))) for m in range(members)]
    rig, _ = _forming(offered)
    assert rig.group().members.subscriptions._names <= MAX_GROUP_TOPICS
    rig.advance(2 * _DELAY_MS)
    assert rig.state() is GroupState.COMPLETING_REBALANCE
    assert rig.group().subscribed_topics is None
    assert rig.group().is_subscribed_to("anything")


def test_a_thousand_members_of_ten_kilobytes_in_two_protocols_are_a_group() -> None:
    metadata = protocols("range", topics=tuple(f"a topic of a name of some length {n:04}" for n in range(250)))[
        0
    ].metadata
    assert len(metadata) > 9_000
    offered = tuple(JoinGroupRequestProtocol(name, metadata) for name in ("range", "cooperative-sticky"))
    rig, tokens = _forming([offered] * 1_000)
    rig.advance(2 * _DELAY_MS)
    leader = rig.joined(tokens[0])
    assert len(leader.members) == 1_000
    token = rig.sync(leader.member_id, 1, {leader.member_id: b"all"})
    assert rig.synced(token) == b"all"
    assert rig.state() is GroupState.STABLE
    rig.crash()
    assert len(rig.group().members) == 1_000
    assert len(rig.group().subscribed_topics or ()) == 250


def _bytes(*sizes: int) -> tuple[JoinGroupRequestProtocol, ...]:
    """What a member of so many bytes in its first protocol, in its second and so on offers; names count too."""
    names = ("range", "sticky")
    return tuple(
        JoinGroupRequestProtocol(name, bytes(size - len(name))) for name, size in zip(names, sizes, strict=False)
    )


def _full(count: int) -> tuple[Rig, list[str]]:
    """A stable group whose members say as much of themselves as a group may, the leader first."""
    rig, tokens = _forming([_bytes(MAX_GROUP_METADATA_BYTES // count)] * count)
    rig.advance(2 * _DELAY_MS)
    answers = [rig.joined(token) for token in tokens]
    rig.complete(answers)
    assert rig.group().members.metadata_bytes == MAX_GROUP_METADATA_BYTES
    return rig, [each.member_id for each in answers]


def _refused(rig: Rig, member_id: str, offered: tuple[JoinGroupRequestProtocol, ...]) -> None:
    answer = rig.answer(rig.join(member_id, offered=offered, two_steps=False))
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_who_says_more_than_its_group_has_room_for_does_not_join() -> None:
    rig, _ = _full(2)
    before = rig.group()
    _refused(rig, "", _bytes(10))
    assert rig.group() == before


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("place", [0, -1], ids=["leader", "follower"])
def test_a_member_that_says_too_much_stays_as_it_was(count: int, place: int) -> None:
    """It was taken out without a rebalance: a group of one was Stable for ever, with nobody in it."""
    rig, members = _full(count)
    size_bytes, member_id = MAX_GROUP_METADATA_BYTES // count, members[place]
    before, timers = rig.group(), dict(rig.timers)
    _refused(rig, member_id, _bytes(size_bytes, 10))
    assert (rig.group(), rig.timers) == (before, timers)
    assert rig.group().leader == members[0]
    assert [rig.heartbeat(each, 1) for each in members] == [ErrorCode.NONE] * count
    assert rig.synced(rig.sync(member_id, 1)) == member_id.encode()
    rig.crash()
    assert (rig.state(), list(rig.group().members)) == (GroupState.STABLE, members)


@pytest.mark.parametrize("count", [1, 4])
def test_a_member_that_says_too_much_is_gone_with_its_session_or_when_it_leaves(count: int) -> None:
    rig, members = _full(count)
    _refused(rig, members[0], _bytes(MAX_GROUP_METADATA_BYTES // count, 10))
    if count == 1:
        rig.advance(SESSION_MS)
        assert (rig.state(), len(rig.group().members)) == (GroupState.EMPTY, 0)
    else:
        rig.leave(members[0])
        assert (rig.state(), list(rig.group().members)) == (GroupState.PREPARING_REBALANCE, members[1:])
        assert rig.group().leader == members[1]
    assert rig.group().members.metadata_bytes == MAX_GROUP_METADATA_BYTES * (count - 1) // count


@pytest.mark.parametrize("place", [0, -1], ids=["leader", "follower"])
def test_a_member_that_says_too_much_before_its_assignment_stays_as_it_was(place: int) -> None:
    rig, tokens = _forming([_bytes(MAX_GROUP_METADATA_BYTES // 2)] * 2)
    rig.advance(2 * _DELAY_MS)
    answers = [rig.joined(token) for token in tokens]
    before = rig.group()
    assert before.state is GroupState.COMPLETING_REBALANCE
    _refused(rig, answers[place].member_id, _bytes(MAX_GROUP_METADATA_BYTES // 2, 10))
    assert rig.group() == before
    rig.complete(answers)


def test_what_a_member_has_said_does_not_count_twice() -> None:
    rig, (member_id,) = _full(1)
    assert rig.joined(rig.join(member_id, offered=_bytes(MAX_GROUP_METADATA_BYTES))).generation_id == 2


def test_a_join_that_waits_is_answered_though_its_member_says_too_much_then() -> None:
    """It had no answer at all."""
    rig, (leader, follower) = _full(2)
    half = MAX_GROUP_METADATA_BYTES // 2
    waits = rig.join(leader, offered=_bytes(half - 1))
    before = rig.group()
    assert (before.state, before.members.joins_waiting) == (GroupState.PREPARING_REBALANCE, 1)
    _refused(rig, leader, _bytes(half, 10))
    assert rig.group() == before
    assert rig.answer(waits) is None
    other = rig.join(follower, offered=_bytes(half))
    rig.complete([rig.joined(waits), rig.joined(other)])
    assert rig.group().members.metadata_bytes == 2 * half - 1


def test_a_rebalance_does_not_wait_for_an_id_whose_client_says_too_much() -> None:
    rig, (leader, follower) = _full(2)
    half = MAX_GROUP_METADATA_BYTES // 2
    rig.join(leader, offered=_bytes(half - 20))
    pending = rig.answer(rig.join(offered=_bytes(10))).member_id
    other = rig.join(follower, offered=_bytes(half))
    assert rig.answer(other) is None
    _refused(rig, pending, _bytes(half))
    assert rig.joined(other).generation_id == 2
    assert not rig.group().pending_members
    assert not [key for key in rig.timers if pending in key]


def test_a_static_member_that_restarts_does_not_count_twice() -> None:
    half = MAX_GROUP_METADATA_BYTES // 2
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=_DELAY_MS))
    tokens = [rig.join(offered=_bytes(half), instance=name) for name in ("a", "b")]
    rig.advance(2 * _DELAY_MS)
    first, second = (rig.joined(token) for token in tokens)
    rig.complete([first, second])
    again = rig.joined(rig.join(offered=_bytes(half), instance="b"))
    assert (again.generation_id, list(rig.group().members)) == (1, [first.member_id, again.member_id])
    assert rig.group().members.metadata_bytes == 2 * half
    fenced = rig.answer(rig.join(second.member_id, offered=_bytes(half), instance="b"))
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID, "and not that the group is full"
    more = rig.join(offered=_bytes(half, 10), instance="b")
    assert rig.answer(more).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert list(rig.group().members) == [first.member_id, again.member_id]


def test_a_generation_that_the_log_would_refuse_is_not_made() -> None:
    """Its record of 95 MB was made, put into a batch, and refused: 260 ms."""
    rig = Rig()
    rig.shard = GroupShard(rig.config, rig.topic_id, max_record_bytes=lambda: 1_000)
    token = rig.join(two_steps=False)
    rig.advance(0)
    leader = rig.joined(token)
    token = rig.token()
    given = (SyncGroupRequestAssignment(leader.member_id, bytes(1_000)),)
    request = SyncGroupRequest(GROUP, 1, leader.member_id, None, "consumer", "range", given)
    decision = rig.shard.sync_group(token, request, rig.now_ms)
    rig.run(decision)
    assert not decision.records
    (report,) = decision.effects
    assert isinstance(report, ReportFault)
    assert "its 1 members take 1065 bytes" in str(report.fault)
    assert rig.answer(token).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.state() is GroupState.PREPARING_REBALANCE
    rig.joined(rig.join(leader.member_id))
    assert rig.synced(rig.sync(leader.member_id, 2, {leader.member_id: b"less"})) == b"less"
