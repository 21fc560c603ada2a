"""A classic group whose members say much of themselves: what a generation costs, and what it may have."""

from ottla.base.limits import MAX_GROUP_METADATA_BYTES, MAX_GROUP_TOPICS
from ottla.coordinator.decision import ReportFault
from ottla.coordinator.group.classic.state import GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.shard import GroupShard
from ottla.wire import schema
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequestProtocol
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.group.rig import GROUP, Rig, protocols
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


def test_a_member_that_says_more_than_its_group_has_room_for_is_refused_and_gone() -> None:
    large = (JoinGroupRequestProtocol("range", bytes(MAX_GROUP_METADATA_BYTES // 2)),)
    rig, (first,) = _forming([large])
    refused = rig.join(offered=large, two_steps=False)
    assert rig.answer(refused).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    rig.advance(2 * _DELAY_MS)
    member_id = rig.joined(first).member_id
    assert rig.answer(rig.join(member_id, offered=large)).error_code == ErrorCode.NONE, "its own does not count twice"
    both = (*large, JoinGroupRequestProtocol("sticky", large[0].metadata))
    assert rig.answer(rig.join(member_id, offered=both)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not rig.group().members
    assert rig.group().members.metadata_bytes == 0


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
    assert "1 members have 1027 bytes of metadata and assignments" in str(report.fault)
    assert rig.answer(token).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.state() is GroupState.PREPARING_REBALANCE
    rig.joined(rig.join(leader.member_id))
    assert rig.synced(rig.sync(leader.member_id, 2, {leader.member_id: b"less"})) == b"less"
