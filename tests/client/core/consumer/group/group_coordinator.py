"""A group coordinator for cores in virtual time: our own shard, which may move, with answers given by callback."""

from collections.abc import Callable
from typing import Any

from ottla.base.steps import result_of
from ottla.client.core.offsets import ConsumerGroupMetadata
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.context import RequestContext
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from ottla.wire.messages.sync_group import SyncGroupResponse
from tests.coordinator.group.rig import Rig

GROUP = "g"
Reply = Callable[[Any], None]


class Coordinator:
    """The group's shard. `advance` it to the time before anything else."""

    def __init__(self, initial_delay_ms: int) -> None:
        self._config = GroupConfig(group_min_session_timeout_ms=1, group_initial_rebalance_delay_ms=initial_delay_ms)
        self._rig = Rig(self._config)
        self._start_ms = self._rig.now_ms
        self._waiting: dict[int, Reply] = {}
        self._unique = 0
        self._away_until_s = 0.0
        #: Offsets that were accepted: member id, partition, offset.
        self.accepted: set[tuple[str, str, int, int]] = set()

    def advance(self, now_s: float) -> None:
        """Time passes; timers fire."""
        self._rig.advance(max(0, self._start_ms + int(now_s * 1000) - self._rig.now_ms))
        self._give_answers()

    @property
    def next_timer_s(self) -> float | None:
        """When the next timer fires."""
        times = self._rig.timers.values()
        return (min(times) - self._start_ms) / 1000 + 0.001 if times else None

    def members(self) -> dict[str, int]:
        """Whom the group counts on, and the generation."""
        group = self._rig.shard.group(GROUP)
        return {} if group is None else dict.fromkeys(group.members, group.generation)

    def counts_on(self, member: ConsumerGroupMetadata) -> bool:
        """Whether what this member has is its own: the group counts on it, in its generation."""
        return self.members().get(member.member_id) == member.generation_id

    def move(self, now_s: float, away_s: float) -> None:
        """It goes to another broker, which reads its log; until then nobody is the coordinator."""
        self._rig.run(self._rig.shard.unloaded())
        self._give_answers()
        self._waiting.clear()
        self._rig.crash()
        self._away_until_s = now_s + away_s

    def ask(self, api: ApiKey, message: Any, now_s: float, reply: Reply) -> None:
        """A request; `reply` is called once, now or later, or never if the coordinator moves."""
        self.advance(now_s)
        if now_s < self._away_until_s:
            reply(refused(api, message, ErrorCode.NOT_COORDINATOR))
            return
        rig = self._rig
        if api is ApiKey.OFFSET_FETCH:
            stable = message.require_stable
            groups = tuple(rig.shard.fetch_offsets(group, require_stable=stable) for group in message.groups)
            reply(OffsetFetchResponse(groups=groups))
            return
        if api is ApiKey.DESCRIBE_GROUPS:
            described = (result_of(rig.shard.describe_group(name)) for name in message.groups)
            reply(DescribeGroupsResponse(groups=tuple(described)))
            return
        token = rig.token()
        if api is ApiKey.OFFSET_COMMIT:

            def committed(answer: Any) -> None:
                self._committed(message, answer)
                reply(answer)

            self._waiting[token] = committed
        else:
            self._waiting[token] = reply
        rig.run(self._decide(api, message, token))
        self._give_answers()

    def _decide(self, api: ApiKey, message: Any, token: int) -> Any:
        shard, now_ms = self._rig.shard, self._rig.now_ms
        match api:
            case ApiKey.JOIN_GROUP:
                self._unique += 1
                context = RequestContext("c", "/127.0.0.1")
                return shard.join_group(token, message, context, now_ms, unique_id=str(self._unique))
            case ApiKey.SYNC_GROUP:
                return shard.sync_group(token, message, now_ms)
            case ApiKey.HEARTBEAT:
                return shard.heartbeat(token, message)
            case ApiKey.LEAVE_GROUP:
                return shard.leave_group(token, message, now_ms)
            case ApiKey.OFFSET_COMMIT:
                return shard.commit_offsets(token, message, now_ms)
        raise AssertionError(f"{api.name} is not for a coordinator")

    def _committed(self, request: OffsetCommitRequest, answer: OffsetCommitResponse) -> None:
        if all(p.error_code == ErrorCode.NONE for topic in answer.topics for p in topic.partitions):
            for topic in request.topics:
                for p in topic.partitions:
                    self.accepted.add((request.member_id, topic.name, p.partition_index, p.committed_offset))

    def _give_answers(self) -> None:
        while (token := next((each for each in self._waiting if each in self._rig.answers), None)) is not None:
            self._waiting.pop(token)(self._rig.answers[token])


def refused(api: ApiKey, message: Any, code: ErrorCode) -> Any:
    """The answer to `message` with an error for all of it."""
    match api:
        case ApiKey.JOIN_GROUP:
            return JoinGroupResponse(error_code=code, member_id=message.member_id)
        case ApiKey.SYNC_GROUP:
            return SyncGroupResponse(error_code=code)
        case ApiKey.HEARTBEAT:
            return HeartbeatResponse(error_code=code)
        case ApiKey.LEAVE_GROUP:
            return LeaveGroupResponse(error_code=code)
        case ApiKey.OFFSET_COMMIT:
            return OffsetCommitResponse(
                topics=tuple(
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=tuple(
                            OffsetCommitResponsePartition(p.partition_index, code) for p in topic.partitions
                        ),
                    )
                    for topic in message.topics
                )
            )
        case ApiKey.OFFSET_FETCH:
            return OffsetFetchResponse(
                groups=tuple(OffsetFetchResponseGroup(g.group_id, error_code=code) for g in message.groups)
            )
        case ApiKey.DESCRIBE_GROUPS:
            return DescribeGroupsResponse(groups=tuple(DescribedGroup(code, group_id=name) for name in message.groups))
    raise AssertionError(f"{api.name} is not for a coordinator")
