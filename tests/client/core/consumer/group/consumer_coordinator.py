"""A coordinator of the consumer protocol (KIP-848) for cores in virtual time: a model, small enough to be read whole.

It divides each topic among those who want it, in the order of their ids. A member is given a partition only when nobody
else has it, or has still to say that it was given up. Whoever is silent for a session, or does not give up in time, is
removed. All that it knows survives a move to another broker, but for how long ago it heard of a member.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.core.offsets import ConsumerGroupMetadata
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.client.core.consumer.rig import topic_id

SESSION_S = 3.0
_INTERVAL_MS = 500
_AWAY = -2
_Partition = tuple[str, int]
Reply = Callable[[Any], None]


class _Member:
    """What the coordinator knows of one member."""

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = self.previous_epoch = 0
        self.topics: tuple[str, ...] = ()
        self.rebalance_timeout_s = 0.0
        self.heard_s = 0.0
        #: What it shall have, what it was given, and what it has still to say that it gave up, until when.
        self.target: set[_Partition] = set()
        self.given: set[_Partition] = set()
        self.revoking: set[_Partition] = set()
        self.revoke_until_s = 0.0

    @property
    def is_away(self) -> bool:
        """A static member that said that it will be back."""
        return self.epoch == _AWAY


class ConsumerCoordinator:
    """The group. `advance` it to the time before anything else."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts
        self._divided_by: dict[str, int] = {}
        self._members: dict[str, _Member] = {}
        self._epoch = 0
        self._committed: dict[_Partition, int] = {}
        self._away_until_s = 0.0

    # as the world sees it

    @property
    def next_timer_s(self) -> float | None:
        """When somebody's time is over."""
        times = [m.heard_s + SESSION_S for m in self._members.values()]
        times += [m.revoke_until_s for m in self._members.values() if m.revoking]
        return min(times) + 0.001 if times else None

    def advance(self, now_s: float) -> None:
        """Remove those whose time is over."""
        for member in list(self._members.values()):
            is_silent = now_s > member.heard_s + SESSION_S
            if is_silent or (member.revoking and now_s > member.revoke_until_s):
                self._remove(member)

    def members(self) -> dict[str, int]:
        """Whom the group counts on, and their epochs."""
        return {m.member_id: m.epoch for m in self._members.values() if not m.is_away}

    def counts_on(self, member: ConsumerGroupMetadata) -> bool:
        """Whether what this member has is its own: the group knows it, and it knows that."""
        return member.generation_id > 0 and member.member_id in self.members()

    def move(self, now_s: float, away_s: float) -> None:
        """It goes to another broker, and gives everybody a whole session again."""
        self._away_until_s = now_s + away_s
        for member in self._members.values():
            member.heard_s = now_s + away_s

    def ask(self, api: ApiKey, message: Any, now_s: float, reply: Reply) -> None:
        """A request, which is answered at once."""
        self.advance(now_s)
        code = ErrorCode.NOT_COORDINATOR if now_s < self._away_until_s else None
        match api:
            case ApiKey.CONSUMER_GROUP_HEARTBEAT:
                reply(ConsumerGroupHeartbeatResponse(error_code=code) if code else self._heartbeat(message, now_s))
            case ApiKey.OFFSET_COMMIT:
                reply(self._commit(message, code))
            case ApiKey.OFFSET_FETCH:
                reply(self._fetch(message, code))
            case _:
                raise AssertionError(f"{api.name} is not for a coordinator of the consumer protocol")

    # heartbeats

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest, now_s: float) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch < 0:
            return self._leave(request)
        member, code = self._find(request)
        if member is None:
            return ConsumerGroupHeartbeatResponse(error_code=code)
        given = self._said(request)
        if not self._is_of_now(member, request.member_epoch, given):
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        member.heard_s = now_s
        if request.rebalance_timeout_ms >= 0:
            member.rebalance_timeout_s = request.rebalance_timeout_ms / 1000
        if request.subscribed_topic_names is not None and request.subscribed_topic_names != member.topics:
            member.topics = request.subscribed_topic_names
            self._divide()
        elif self._divided_by != self._counts:
            self._divide()
        before = set(member.given)
        if given is not None:
            member.revoking &= given
        self._reconcile(member, now_s)
        tells = request.member_epoch == 0 or given is not None or member.given != before
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=_INTERVAL_MS,
            assignment=_on_the_wire(member.given) if tells else None,
        )

    def _find(self, request: ConsumerGroupHeartbeatRequest) -> tuple[_Member | None, ErrorCode]:
        member = self._members.get(request.member_id)
        instance = request.instance_id
        holder = next((m for m in self._members.values() if instance is not None and m.instance_id == instance), None)
        if holder is not None and holder is not member:
            if request.member_epoch > 0:
                return None, ErrorCode.FENCED_INSTANCE_ID
            if not holder.is_away:
                return None, ErrorCode.UNRELEASED_INSTANCE_ID
            return self._replace(holder, request.member_id), ErrorCode.NONE
        if member is not None and member.is_away:
            return self._replace(member, request.member_id), ErrorCode.NONE
        if member is None and request.member_epoch == 0:
            member = self._members[request.member_id] = _Member(request.member_id, instance)
        return member, ErrorCode.UNKNOWN_MEMBER_ID

    def _replace(self, holder: _Member, member_id: str) -> _Member:
        """A static member is back, perhaps as another process: it gets what it had."""
        del self._members[holder.member_id]
        holder.member_id, holder.epoch, holder.previous_epoch = member_id, 0, 0
        holder.revoking.clear()
        self._members[member_id] = holder
        return holder

    def _is_of_now(self, member: _Member, epoch: int, given: set[_Partition] | None) -> bool:
        if epoch == member.epoch:
            return True
        # the answer that named the newer epoch may have been lost
        return epoch == member.previous_epoch and given is not None and given <= member.given

    def _reconcile(self, member: _Member, now_s: float) -> None:
        going = member.given - member.target
        if going:
            if not member.revoking:
                member.revoke_until_s = now_s + member.rebalance_timeout_s
            member.revoking |= going
            member.given -= going
            if member.epoch == 0:  # it has just come, and has nothing of it
                member.revoking.clear()
        if not member.revoking:
            if member.epoch != self._epoch:
                member.previous_epoch, member.epoch = member.epoch, self._epoch
            taken = {p for other in self._members.values() if other is not member for p in other.given | other.revoking}
            member.given |= member.target - taken

    def _divide(self) -> None:
        """There is a new group epoch: who shall have what?"""
        self._epoch += 1
        self._divided_by = dict(self._counts)
        for member in self._members.values():
            member.target = set()
        for topic, count in self._counts.items():
            wanting = [self._members[name] for name in sorted(self._members) if topic in self._members[name].topics]
            for number in range(count if wanting else 0):
                wanting[number * len(wanting) // count].target.add((topic, number))

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member = self._members.get(request.member_id)
        if member is None:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if request.member_epoch == _AWAY:
            member.epoch = _AWAY
        else:
            self._remove(member)
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)

    def _remove(self, member: _Member) -> None:
        del self._members[member.member_id]
        self._divide()

    def _said(self, request: ConsumerGroupHeartbeatRequest) -> set[_Partition] | None:
        if request.topic_partitions is None:
            return None
        names = {topic_id(name): name for name in self._counts}
        return {(names[each.topic_id], number) for each in request.topic_partitions for number in each.partitions}

    # offsets

    def _refusal(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Why offsets of this member are refused; NONE if they are not."""
        member = self._members.get(member_id or "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID if self._members else ErrorCode.NONE
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def _commit(self, request: OffsetCommitRequest, code: ErrorCode | None) -> OffsetCommitResponse:
        code = code or self._refusal(request.member_id, request.generation_id_or_member_epoch)
        topics = []
        for topic in request.topics:
            parts = tuple(OffsetCommitResponsePartition(p.partition_index, code) for p in topic.partitions)
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=parts))
            if code is ErrorCode.NONE:
                self._committed.update({(topic.name, p.partition_index): p.committed_offset for p in topic.partitions})
        return OffsetCommitResponse(topics=tuple(topics))

    def _fetch(self, request: OffsetFetchRequest, code: ErrorCode | None) -> OffsetFetchResponse:
        [group] = request.groups
        if code is None and group.member_id is not None:
            code = self._refusal(group.member_id, group.member_epoch)
        topics = tuple(
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartitions(p, self._committed.get((topic.name, p), -1))
                    for p in topic.partition_indexes
                ),
            )
            for topic in group.topics or ()
        )
        code = code or ErrorCode.NONE
        found = OffsetFetchResponseGroup(group.group_id, () if code else topics, code)
        return OffsetFetchResponse(groups=(found,))


def _on_the_wire(given: set[_Partition]) -> Assignment:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(given):
        by_topic.setdefault(topic, []).append(number)
    return Assignment(tuple(TopicPartitions(topic_id(name), tuple(ps)) for name, ps in by_topic.items()))
