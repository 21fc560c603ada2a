"""Makes a member's JoinGroup, SyncGroup and LeaveGroup, and reads DescribeGroups. No state."""

from collections.abc import Iterable

from ottla.base.types import TopicPartition
from ottla.client.config.consumer import ConsumerConfig
from ottla.client.core.consumer.group.classic.group_protocol import read_assignment, subscription_protocols
from ottla.client.core.consumer.group.classic.member import ClassicMember
from ottla.client.core.consumer.shared import Shared
from ottla.wire.codec import WireError
from ottla.wire.messages.describe_groups import DescribeGroupsResponse
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

_PROTOCOL_TYPE = "consumer"
#: The coordinator answers JoinGroup within the time that the group allows for a rebalance. The answer may take this
#: much longer to arrive.
_JOIN_SLACK_MS = 5_000
_STABLE = "Stable"


def rebalance_timeout_ms(config: ConsumerConfig) -> int:
    """How long to wait for the answers to JoinGroup and SyncGroup, which wait for the other members."""
    return config.max_poll_interval_ms + _JOIN_SLACK_MS


def join_request(shared: Shared, member: ClassicMember, reason: str | None) -> JoinGroupRequest:
    """Join, or join again. Raises AssignorError."""
    config = shared.config
    protocols = subscription_protocols(
        shared.assignors,
        shared.subscription.topics,
        shared.positions.assignment,
        member.generation_id,
        config.client_rack or None,
    )
    return JoinGroupRequest(
        member.group_id,
        config.session_timeout_ms,
        config.max_poll_interval_ms,
        member.member_id,
        member.group_instance_id,
        _PROTOCOL_TYPE,
        protocols,
        reason,
    )


def sync_request(member: ClassicMember, assignments: tuple[SyncGroupRequestAssignment, ...]) -> SyncGroupRequest:
    """Ask for this member's assignment. The leader's request brings the assignments of all members."""
    return SyncGroupRequest(
        member.group_id,
        member.generation_id,
        member.member_id,
        member.group_instance_id,
        _PROTOCOL_TYPE,
        member.protocol,
        assignments,
    )


def leave_request(member: ClassicMember, reason: str) -> LeaveGroupRequest:
    """Leave the group, and say why."""
    return LeaveGroupRequest(member.group_id, (MemberIdentity(member.member_id, member.group_instance_id, reason),))


def counts_assigned_by(answer: DescribeGroupsResponse, topics: Iterable[str]) -> dict[str, int] | None:
    """How many partitions of each topic the group's assignment gives to somebody.

    A partition that is on its way from one member to another (KIP-429) is given to nobody. None if the answer does not
    tell: the group is being rebalanced, or the answer is an error.
    """
    if not answer.groups or answer.groups[0].error_code or answer.groups[0].group_state != _STABLE:
        return None
    given: set[TopicPartition] = set()
    try:
        for member in answer.groups[0].members:
            given.update(read_assignment(member.member_assignment).partitions)
    except WireError:
        return None
    return {topic: sum(tp.topic == topic for tp in given) for topic in topics}
