"""An Apache Kafka's `__consumer_offsets` taken over, and our own records against its bytes."""

from __future__ import annotations

from ottla.coordinator.group.classic.state import GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.context import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchResponsePartitions
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.group import apache_log as apache
from tests.coordinator.group.rig import Rig


def taken_over(length: int | None = None) -> Rig:
    rig = Rig()
    rig.log = list(apache.STORY[:length])
    rig.crash()
    return rig


def test_an_apache_kafka_s_groups_and_offsets_are_taken_over() -> None:
    rig = taken_over()
    assert rig.fetch(0) == OffsetFetchResponsePartitions(0, 3, -1, "note\0", 0)
    assert rig.fetch(1, require_stable=True) == OffsetFetchResponsePartitions(1, 4, -1, "", 0)
    readers, statics = rig.group("readers"), rig.group("statics")
    assert (readers.state, readers.generation, readers.protocol) == (GroupState.EMPTY, 2, None)
    assert (statics.state, statics.generation, statics.leader) == (GroupState.STABLE, 1, apache.STATIC_MEMBER)
    member = statics.members[apache.STATIC_MEMBER]
    assert (member.group_instance_id, member.client_id, member.client_host) == ("i-1", "cl", "/127.0.0.1")
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (300_000, 6_000)
    assert (member.metadata("range"), member.assignment) == (apache.SUBSCRIPTION, apache.ASSIGNMENT)
    assert statics.subscribed_topics == frozenset({"words"})
    assert rig.shard.group("simple") is None


def test_g17_an_apache_kafka_s_member_goes_on_with_us() -> None:
    rig = taken_over(2)
    assert rig.state() is GroupState.STABLE
    assert rig.heartbeat(apache.MEMBER, 1) is ErrorCode.NONE
    assert rig.synced(rig.sync(apache.MEMBER, 1)) == apache.ASSIGNMENT
    assert rig.commit(9, member_id=apache.MEMBER, generation=1) is ErrorCode.NONE


def test_a_transaction_open_in_an_apache_kafka_stays_open() -> None:
    rig = taken_over(8)
    assert rig.fetch(1, require_stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert rig.fetch(1).committed_offset == 5


def test_commit_and_generation_records_are_apache_kafka_s_bytes() -> None:
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=19))
    rig.now_ms = 0x1A1FD565C69
    context = RequestContext("cl", "/127.0.0.1")
    offered = (JoinGroupRequestProtocol("range", apache.SUBSCRIPTION),)
    for member_id in ("", apache.MEMBER):
        request = JoinGroupRequest("readers", 6_000, 300_000, member_id, None, "consumer", offered)
        decision = rig.shard.join_group(
            rig.token(), request, context, rig.now_ms, unique_id=apache.MEMBER.removeprefix("cl-")
        )
        rig.run(decision)
    rig.advance(19)
    assignment = (SyncGroupRequestAssignment(apache.MEMBER, apache.ASSIGNMENT),)
    sync = SyncGroupRequest("readers", 1, apache.MEMBER, None, "consumer", "range", assignment)
    rig.run(rig.shard.sync_group(rig.token(), sync, rig.now_ms))
    rig.now_ms = 0x1A1FD565D27
    partitions = tuple(OffsetCommitRequestPartition(p, 5, 0, "") for p in (0, 1))
    topics = (OffsetCommitRequestTopic(apache.TOPIC_ID, "words", partitions),)
    commit = OffsetCommitRequest("readers", 1, apache.MEMBER, None, -1, topics)
    rig.run(rig.shard.commit_offsets(rig.token(), commit, rig.now_ms))
    rig.now_ms = 0x1A1FD5662C5
    rig.leave(apache.MEMBER)
    assert rig.records == [entry.record for entry in (*apache.STORY[:4], apache.STORY[10])]


def test_deleting_a_simple_group_writes_apache_kafka_s_tombstones() -> None:
    rig = taken_over(13)
    rig.run(rig.shard.delete_group(1, "simple"))
    assert rig.records[-2:] == [apache.STORY[13].record, apache.STORY[14].record]
