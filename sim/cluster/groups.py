"""The APIs of groups: if this broker has the group's coordinator, that answers."""

from typing import TYPE_CHECKING

from ottla.base.steps import result_of
from ottla.base.types import TopicPartition
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.offsets.commit import refuse_commit
from ottla.coordinator.offsets.fetch import groups_of, response_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sim.cluster.coordinators import ask, group_coordinator, offsets_in_log
from sim.cluster.server import Answer, Context
from sim.history import Outdated

if TYPE_CHECKING:
    from sim.cluster.node import Node

_KNOWS_MEMBER_ID_REQUIRED_FROM = 4
_NULLABLE_PROTOCOL_FROM = 7
_SKIPS_ASSIGNMENT_FROM = 9
_COMMITS_BY_ID_FROM = 10
_FETCHES_BY_ID_FROM = 10


def join_group(node: "Node", request: JoinGroupRequest, context: Context, answer: Answer) -> None:
    """Wait for the next generation."""
    unique = f"{node.cluster.unique():08d}"

    def answered(response: JoinGroupResponse) -> None:
        name = None if response.error_code else response.protocol_name
        answer(response._replace(protocol_name=name if context.version >= _NULLABLE_PROTOCOL_FROM else name or ""))

    ask(
        group_coordinator(node, request.group_id),
        lambda shard, token, now_ms: shard.join_group(
            token,
            request,
            RequestContext(context.client_id, context.host),
            now_ms,
            unique_id=unique,
            member_id_required=context.version >= _KNOWS_MEMBER_ID_REQUIRED_FROM,
            skip_assignment=context.version >= _SKIPS_ASSIGNMENT_FROM,
        ),
        answered,
        lambda error: JoinGroupResponse(error_code=error, member_id=request.member_id),
    )


def sync_group(node: "Node", request: SyncGroupRequest, context: Context, answer: Answer) -> None:
    """Bring or fetch the assignment."""
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ask(
        group_coordinator(node, request.group_id),
        lambda shard, token, now_ms: shard.sync_group(token, request, now_ms),
        answer,
        lambda error: SyncGroupResponse(
            error_code=ErrorCode.REBALANCE_IN_PROGRESS if error is loading else error  # as in Kafka
        ),
    )


def heartbeat(node: "Node", request: HeartbeatRequest, context: Context, answer: Answer) -> None:
    """A member says that it is alive."""
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ask(
        group_coordinator(node, request.group_id),
        lambda shard, token, now_ms: shard.heartbeat(token, request),
        answer,
        lambda error: HeartbeatResponse(error_code=ErrorCode.NONE if error is loading else error),
    )


def leave_group(node: "Node", request: LeaveGroupRequest, context: Context, answer: Answer) -> None:
    """Members leave."""
    ask(
        group_coordinator(node, request.group_id),
        lambda shard, token, now_ms: shard.leave_group(token, request, now_ms),
        answer,
        lambda error: LeaveGroupResponse(error_code=error),
    )


def offset_commit(node: "Node", request: OffsetCommitRequest, context: Context, answer: Answer) -> None:
    """Commit offsets of a group."""
    if context.version >= _COMMITS_BY_ID_FROM:
        named = tuple(t._replace(name=node.image.name_of(t.topic_id) or "") for t in request.topics)
        request = request._replace(topics=named)

    ask(
        group_coordinator(node, request.group_id),
        lambda shard, token, now_ms: shard.commit_offsets(token, request, now_ms, report_missing=True),
        answer,
        lambda error: refuse_commit(request, error),
    )


def describe_groups(node: "Node", request: DescribeGroupsRequest, context: Context, answer: Answer) -> None:
    """Who is in the groups. A static leader asks this when it is told to skip the assignment."""

    def one(group_id: str) -> DescribedGroup:
        coordinator = group_coordinator(node, group_id)
        if isinstance(coordinator, ErrorCode):
            return DescribedGroup(error_code=coordinator, group_id=group_id)
        return result_of(coordinator.shard.describe_group(group_id, report_missing=True))

    answer(DescribeGroupsResponse(groups=tuple(one(group_id) for group_id in request.groups)))


def _note_outdated(node: "Node", who: str, told: OffsetFetchResponseGroup, now: OffsetFetchResponseGroup) -> None:
    """For the checkers: a deposed coordinator tells offsets from its memory, as it does in Kafka."""
    for topic, current in zip(told.topics, now.topics, strict=False):
        for part, newer in zip(topic.partitions, current.partitions, strict=False):
            if part.error_code == ErrorCode.NONE and part.committed_offset < newer.committed_offset:
                tp = TopicPartition(topic.name, part.partition_index)
                data = Outdated(who, tp, max(part.committed_offset, 0), newer.committed_offset)
                text = f"{who} was told {tp}@{data.told}, and {data.committed} is committed"
                node.cluster.history.add(node.host, "outdated offsets", text, data)


def offset_fetch(node: "Node", request: OffsetFetchRequest, context: Context, answer: Answer) -> None:
    """What groups have committed."""
    by_id = context.version >= _FETCHES_BY_ID_FROM

    def one(asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        coordinator = group_coordinator(node, asked.group_id)
        if isinstance(coordinator, ErrorCode):
            return OffsetFetchResponseGroup(asked.group_id, (), coordinator)
        if by_id and asked.topics is not None:
            named = tuple(t._replace(name=node.image.name_of(t.topic_id) or "") for t in asked.topics)
            asked = asked._replace(topics=named)
        told = coordinator.shard.fetch_offsets(asked, require_stable=request.require_stable)
        if coordinator.is_deposed:
            _note_outdated(node, context.client_id, told, offsets_in_log(coordinator, asked))
        return told

    answer(response_of(request, tuple(one(group) for group in groups_of(request))))
