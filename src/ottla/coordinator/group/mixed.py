"""Members of the classic protocol in a consumer group (KIP-848, online migration): JoinGroup, SyncGroup, and so on.

To such a member the group looks like a classic one whose leader it never is. Its generation is its member epoch. When
it must give something up or can get more, its heartbeat says REBALANCE_IN_PROGRESS; it joins again, saying what it
still has, and its join is the step that a heartbeat of the consumer protocol would have been.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

from ottla.base.errors import CorruptDataError
from ottla.base.limits import MAX_REQUEST_ELEMENTS
from ottla.coordinator.decision import Decision, in_steps
from ottla.coordinator.facts import Why
from ottla.coordinator.group.classic.draft import join_error, sync_error
from ottla.coordinator.group.classic.leave import identities, refused, response
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.consumer.errors import RefusedError
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.groups import ConsumerGroups
from ottla.coordinator.group.consumer.heartbeat import (
    check_room,
    static_member,
    step,
    update_subscriptions,
    write_member,
)
from ottla.coordinator.group.consumer.leave import (
    check_not_fenced,
    fence,
    known_member,
    known_static_member,
    leaving_member,
)
from ottla.coordinator.group.consumer.member import Member
from ottla.coordinator.group.consumer.regexes import RegexChange, update_regex
from ottla.coordinator.group.consumer.room import CLASSIC_JOIN, CLASSIC_SYNC, Draft
from ottla.coordinator.group.consumer.states import MemberState
from ottla.coordinator.group.consumer.target import is_due, update_target
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.kinds import answer
from ottla.coordinator.group.migration import assignment_bytes, downgrade_by, may_downgrade_by
from ottla.wire.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from ottla.wire.consumer_protocol import CONSUMER, decode_subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class MixedGroups:
    """The classic protocol's requests in consumer groups. See the module."""

    def __init__(self, config: GroupConfig, consumer: ConsumerGroups) -> None:
        self._config = config
        self._consumer = consumer

    def join_group(
        self,
        token: int,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        context: RequestContext,
        now_ms: int,
        *,
        unique_id: str,
        member_id_required: bool,
    ) -> Decision:
        """JoinGroup: the member comes, or takes its next step."""
        low, high = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            return answer(token, join_error(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        draft = Draft(self._consumer.room, group, now_ms)
        joining = _join(draft, request, context, unique_id, member_id_required=member_id_required)

        def steps() -> Generator[None, None, Decision]:
            try:
                joined = yield from joining
            except RefusedError as refusal:
                return answer(token, join_error(refusal.error, ""), refusal.effects)
            return self._consumer.decide(draft, token, joined, lambda error: join_error(error, ""))

        return in_steps(steps())

    def sync_group(self, token: int, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int) -> Decision:
        """SyncGroup: what the member has."""
        return self._without_records(
            token, group, now_ms, lambda draft: _sync(draft, request), lambda error: sync_error(error)
        )

    def heartbeat(self, token: int, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> Decision:
        """Heartbeat: the member lives, and hears whether it must join again."""
        return self._without_records(
            token,
            group,
            now_ms,
            lambda draft: _heartbeat(draft, request),
            lambda error: HeartbeatResponse(error_code=error),
        )

    def leave_group(self, token: int, group: ConsumerGroup, request: LeaveGroupRequest, now_ms: int) -> Decision:
        """LeaveGroup; an administrator may remove members of either protocol."""
        draft = Draft(self._consumer.room, group, now_ms)
        leaving: dict[str, Member] = {}
        reasons: dict[str, str] = {}
        answers = []
        for identity in identities(request):
            error = ErrorCode.NONE
            try:
                member = _leaving(group, identity)
                leaving[member.member_id] = member
                reasons[member.member_id] = identity.reason or ""
            except RefusedError as refusal:
                error = refusal.error
            answers.append(MemberResponse(identity.member_id, identity.group_instance_id, error))

        def steps() -> Generator[None, None, Decision]:
            yield from fence(draft, tuple(leaving.values()), Why.LEFT, reasons=reasons)
            said = response(request, answers)
            return self._consumer.decide(draft, token, said, lambda error: refused(request, error))

        return in_steps(steps())

    def _without_records(
        self,
        token: int,
        group: ConsumerGroup,
        now_ms: int,
        act: Callable[[Draft], object],
        refusal: Callable[[ErrorCode], object],
    ) -> Decision:
        """A request that changes nothing but timers; they are set for a refused one, too."""
        draft = Draft(self._consumer.room, group, now_ms)
        try:
            said = act(draft)
        except RefusedError as refused_:
            said = refusal(refused_.error)
        return self._consumer.decide(draft, token, said, refusal)


# -- joining


def _join(
    draft: Draft, request: JoinGroupRequest, context: RequestContext, unique_id: str, *, member_id_required: bool
) -> Generator[None, None, JoinGroupResponse]:
    """In steps where it comes to very many topics or members."""
    group, member_id = draft.group, request.member_id or unique_id
    check_room(group, member_id, draft.room.config.consumer_max_size)
    _check_protocols(group, request)
    if member_id_required and not request.member_id and request.group_instance_id is None:
        return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    subscription = _subscription(request)
    replaced = group.static_member(request.group_instance_id)
    downgrade = may_downgrade_by(draft, replaced)
    member = _joining(draft, request, member_id, subscription)
    updated = _updated(member, request, context, subscription)
    draft.joined(updated)
    names_changed = write_member(draft, member, updated)
    regex = update_regex(draft, member, updated, context.sees)
    bump = names_changed or regex is not RegexChange.NONE
    changed = yield from update_subscriptions(draft, member, updated, bump=bump)
    if downgrade and replaced is not None:
        generation = yield from downgrade_by(draft, replaced, updated)  # in which it hears that the group rebalances
    else:
        target = yield from update_target(draft, changed.epoch, updated, changed.kind)
        owned = _owned(draft, subscription)
        updated = yield from step(draft, updated, target, owned=owned, subscription_changed=bump)
        draft.expect_heartbeat(updated.member_id, request.session_timeout_ms)
        draft.start(CLASSIC_SYNC, updated.member_id, _rebalance_timeout_ms(request))
        generation = updated.member_epoch
    _joined(draft, updated.member_id)
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type=CONSUMER,
        protocol_name=request.protocols[0].name,
        member_id=updated.member_id,
    )


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> None:
    """RefusedError unless the member has an assignor in common with the other members of the classic protocol."""
    names = {each.name for each in request.protocols}
    common = any(group.classic_protocols[name] == group.classic_members for name in names)
    if request.protocol_type != CONSUMER or not common:
        raise RefusedError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {request.member_id}'s protocols are not supported."
        )


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return decode_subscription(request.protocols[0].metadata, MAX_REQUEST_ELEMENTS)
    except CorruptDataError as fault:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, str(fault)) from None


def _joining(
    draft: Draft, request: JoinGroupRequest, member_id: str, subscription: ConsumerProtocolSubscription
) -> Member:
    """The member that joins; RefusedError (UNKNOWN_MEMBER_ID) for one that must give up what it has first.

    Who was expelled while it waited for the answer to its JoinGroup has not heard of it, and says that it still has
    partitions, from a generation. Others may have them, so it is not taken in: it would keep them, and go on in them
    where it was. Apache Kafka takes in every member id, because those that it has given away (KIP-394) are not kept.
    """
    if request.group_instance_id is None:
        if request.member_id and subscription.owned_partitions and subscription.generation_id >= 0:
            return known_member(draft.group, member_id)
        return draft.group.members.get(member_id, Member(member_id))
    if not request.member_id:
        return static_member(draft, member_id, request.group_instance_id, is_classic=True)
    return _static(draft.group, request.member_id, request.group_instance_id)


def _static(group: ConsumerGroup, member_id: str, instance_id: str) -> Member:
    member = known_static_member(group, instance_id)
    check_not_fenced(member, member_id, instance_id)
    return member


def _updated(
    member: Member, request: JoinGroupRequest, context: RequestContext, subscription: ConsumerProtocolSubscription
) -> Member:
    protocols = tuple(ClassicProtocol(each.name, each.metadata) for each in request.protocols)
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=context.client_id,
        client_host=context.client_host,
        classic=ClassicMemberMetadata(request.session_timeout_ms, protocols),
    )


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """The time to rejoin. Version 0 does not have it; there it is the session timeout."""
    return request.session_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms


def _owned(draft: Draft, subscription: ConsumerProtocolSubscription) -> dict[bytes, tuple[int, ...]]:
    found = ((draft.room.topics.find(each.topic), each.partitions) for each in subscription.owned_partitions)
    return {topic.topic_id: numbers for topic, numbers in found if topic is not None}


# -- staying


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    """The member of the classic protocol that asks; RefusedError when it is none, or its generation is over."""
    if instance_id is None:
        member = known_member(group, member_id)
    else:
        member = _static(group, member_id, instance_id)
    if not member.is_classic:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if member.member_epoch != generation:
        raise RefusedError(
            ErrorCode.ILLEGAL_GENERATION, f"generation {generation}, but the member is in {member.member_epoch}"
        )
    return member


def _sync(draft: Draft, request: SyncGroupRequest) -> SyncGroupResponse:
    group = draft.group
    member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    metadata = member.classic or ClassicMemberMetadata()
    first = metadata.supported_protocols[0]
    for said, right in ((request.protocol_type, CONSUMER), (request.protocol_name, first.name)):
        if said is not None and said != right:
            raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{said} is not {right}")
    if group.target_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(draft, member)
        raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS, "the member should rejoin")
    draft.stop(member.member_id, CLASSIC_SYNC)
    draft.expect_heartbeat(member.member_id, metadata.session_timeout_ms)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes(draft.room, {t: sorted(n) for t, n in member.assigned.items()}, first.metadata),
    )


def _heartbeat(draft: Draft, request: HeartbeatRequest) -> HeartbeatResponse:
    group = draft.group
    member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    draft.expect_heartbeat(member.member_id, (member.classic or ClassicMemberMetadata()).session_timeout_ms)
    must_join = (
        member.member_epoch < group.target_epoch
        # Where all use the classic protocol, only a JoinGroup computes the next target.
        or (group.target_epoch < group.epoch and is_due(draft, group.epoch))
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member))
    )
    if must_join:
        _expect_join(draft, member)
    return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if must_join else ErrorCode.NONE)


def _waits(group: ConsumerGroup, member: Member) -> bool:
    """Whether another member still has something of the member's part."""
    return any(
        number not in member.assigned.get(topic_id, {}) and group.partition_epoch(topic_id, number) != -1
        for topic_id, numbers in group.target_of(member).items()
        for number in numbers
    )


def _expect_join(draft: Draft, member: Member) -> None:
    """The member must join again within its rebalance timeout, counted from the first time it was told."""
    joining = draft.soft.joining
    if member.member_id not in joining:
        joining.add(member.member_id)
        draft.start(CLASSIC_JOIN, member.member_id, member.rebalance_timeout_ms)


def _joined(draft: Draft, member_id: str) -> None:
    draft.soft.joining.discard(member_id)
    draft.stop(member_id, CLASSIC_JOIN)


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    """The member to remove; one that is named by its instance id alone is whoever has that."""
    if identity.group_instance_id is not None and not identity.member_id:
        return known_static_member(group, identity.group_instance_id)
    return leaving_member(group, identity.member_id, identity.group_instance_id)
