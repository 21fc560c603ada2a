"""Fetch: reads up to the high watermark or the last stable offset, lists aborted transactions, and has sessions."""

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from ottla.base.types import TopicPartition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from sim.cluster.produce import throttle_ms
from sim.cluster.replica import Replica
from sim.cluster.server import Answer, Context

if TYPE_CHECKING:
    from sim.cluster.node import Node

_TOPIC_IDS_FROM = 13
_TELLS_LEADER_FROM = 16
_INITIAL_EPOCH, _FINAL_EPOCH = 0, -1


class _Asked:
    """One partition of a request or session, and the high watermark that was last answered for it."""

    __slots__ = ("high_watermark", "partition")

    def __init__(self, partition: FetchPartition) -> None:
        self.partition = partition
        self.high_watermark = -1


class _Session:
    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.epoch = 1
        #: By topic name (or id) and number.
        self.partitions: OrderedDict[tuple[str, bytes, int], _Asked] = OrderedDict()


def fetch(node: "Node", request: FetchRequest, context: Context, answer: Answer) -> None:
    """Answer at once if there are enough bytes, or an error. Otherwise wait."""
    session, asked, error = _open(node, request)
    if error is not ErrorCode.NONE:
        answer(FetchResponse(error_code=error))
        return
    _Fetch(node, request, context, answer, session, asked).try_now()


def _open(node: "Node", request: FetchRequest) -> tuple[_Session | None, list[tuple[str, bytes, _Asked]], ErrorCode]:
    named = [(t.topic, t.topic_id, _Asked(p)) for t in request.topics for p in t.partitions]
    if request.session_epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
        node.sessions.pop(request.session_id, None)
        if request.session_epoch == _FINAL_EPOCH or not node.cluster.rules.fetch_sessions or not named:
            return None, named, ErrorCode.NONE
        session_id = node.cluster.unique()
        session = node.sessions[session_id] = _Session(session_id)
    else:
        known = node.sessions.get(request.session_id)
        if known is None:
            return None, [], ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if known.epoch != request.session_epoch:
            return None, [], ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session = known
        session.epoch += 1
    for name, topic_id, one in named:
        known_one = session.partitions.setdefault((name, topic_id, one.partition.partition), one)
        known_one.partition = one.partition
    for topic in request.forgotten_topics_data:
        for number in topic.partitions:
            session.partitions.pop((topic.topic, topic.topic_id, number), None)
    return session, [(name, topic_id, one) for (name, topic_id, _), one in session.partitions.items()], ErrorCode.NONE


class _Fetch:
    """One request that may wait."""

    def __init__(
        self,
        node: "Node",
        request: FetchRequest,
        context: Context,
        answer: Answer,
        session: _Session | None,
        asked: list[tuple[str, bytes, _Asked]],
    ) -> None:
        self._node = node
        self._request = request
        self._context = context
        self._answer = answer
        self._session = session
        self._asked = asked
        self._timer: asyncio.TimerHandle | None = None
        self._done = False
        self._trying = False

    def try_now(self) -> None:
        """Answer if there are enough bytes, or an error."""
        self._trying = False
        if self._done:
            return
        results = [(name, topic_id, one, self._read(name, topic_id, one)) for name, topic_id, one in self._asked]
        size = sum(len(data.records or b"") for _, _, _, data in results)
        failed = any(data.error_code for _, _, _, data in results)
        if size >= self._request.min_bytes or failed or not results:
            self._finish(results)
            return
        if self._timer is None:
            self._timer = self._node.later(self._request.max_wait_ms / 1000, self._give_up)
        for replica in self._replicas():
            replica.watchers[self._again] = None

    def _again(self) -> None:
        if not self._trying:
            self._trying = True
            self._node.later(0.0, self.try_now)

    def _give_up(self) -> None:
        if not self._done:
            self._finish([(n, i, one, self._read(n, i, one)) for n, i, one in self._asked])

    def _name(self, name: str, topic_id: bytes) -> str:
        by_id = self._context.version >= _TOPIC_IDS_FROM
        return (self._node.image.name_of(topic_id) or "") if by_id else name

    def _replicas(self) -> list[Replica]:
        found = []
        for name, topic_id, one in self._asked:
            tp = TopicPartition(self._name(name, topic_id), one.partition.partition)
            if tp in self._node.image.partitions:
                found.append(self._node.replica(tp))
        return found

    def _read(self, topic: str, topic_id: bytes, one: _Asked) -> PartitionData:
        wanted = one.partition
        name = self._name(topic, topic_id)
        if not name:
            return PartitionData(wanted.partition, ErrorCode.UNKNOWN_TOPIC_ID, -1)
        tp = TopicPartition(name, wanted.partition)
        if tp not in self._node.image.partitions:
            return PartitionData(wanted.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        replica = self._node.replica(tp)
        error = epoch_error(replica, wanted.current_leader_epoch)
        if error is ErrorCode.NONE and not 0 <= wanted.fetch_offset <= replica.log.end_offset:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if error is not ErrorCode.NONE:
            data = PartitionData(wanted.partition, error, -1, log_start_offset=0)
            state = self._node.image.partitions[tp]
            if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH) and state.leader >= 0:
                data = data._replace(current_leader=LeaderIdAndEpoch(state.leader, state.leader_epoch))
            return data
        committed_only = self._request.isolation_level == 1
        high_watermark = replica.high_watermark
        stable = replica.log.stable_offset(high_watermark)
        end = stable if committed_only else high_watermark
        entries = list(replica.log.read(wanted.fetch_offset, end, wanted.partition_max_bytes))
        aborted: tuple[AbortedTransaction, ...] | None = None
        if committed_only:
            upper = entries[-1].last_offset + 1 if entries else end
            aborted = tuple(AbortedTransaction(*each) for each in replica.log.aborted(wanted.fetch_offset, upper))
        return PartitionData(
            wanted.partition,
            ErrorCode.NONE,
            high_watermark,
            stable,
            0,
            aborted_transactions=aborted,
            records=b"".join(entry.payload for entry in entries),
        )

    def _finish(self, results: list[tuple[str, bytes, _Asked, PartitionData]]) -> None:
        self._done = True
        for replica in self._replicas():
            replica.watchers.pop(self._again, None)
        if self._timer is not None:
            self._timer.cancel()
        full = self._session is None or self._request.session_epoch == _INITIAL_EPOCH
        topics: dict[tuple[str, bytes], list[PartitionData]] = {}
        for name, topic_id, one, data in results:
            if full or data.records or data.error_code or data.high_watermark != one.high_watermark:
                one.high_watermark = data.high_watermark
                topics.setdefault((name, topic_id), []).append(data)
        leaders: set[int] = set()
        if self._context.version >= _TELLS_LEADER_FROM:
            leaders = {data.current_leader.leader_id for _, _, _, data in results} - {-1}
        self._answer(
            FetchResponse(
                throttle_ms(self._node),
                ErrorCode.NONE,
                self._session.session_id if self._session is not None else 0,
                tuple(FetchableTopicResponse(i, n, tuple(parts)) for (n, i), parts in topics.items()),
                tuple(NodeEndpoint(n, self._node.cluster.nodes[n].host, 9092) for n in sorted(leaders)),
            )
        )


def epoch_error(replica: Replica, epoch: int) -> ErrorCode:
    """Why a client that knows the leader epoch `epoch` cannot read here (KIP-320); NONE if it can."""
    error = replica.answering_error()
    if error is ErrorCode.NONE and epoch >= 0 and epoch != replica.leader_epoch:
        older = epoch < replica.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
    return error
