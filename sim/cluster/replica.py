"""One replica of a partition: the leader or a follower, as far as its broker knows.

A leader appends at once. With acks=all it answers when every replica in sync has the batch. Followers ask the leader
for new batches, some time after there are any. A leader that was deposed and does not know it goes on appending. Nobody
copies from it, and what it alone has is cut off when it follows its successor.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.types import TopicPartition
from ottla.wire.batch import BatchHeader
from ottla.wire.errors import ErrorCode
from sim.cluster.controller import PartitionState
from sim.cluster.log import ReplicaLog

if TYPE_CHECKING:
    from sim.cluster.node import Node

#: Called with the result of an append: an error code, and the batch's first offset (-1 with an error).
OnAppended = Callable[[ErrorCode, int], None]


class _Waiting:
    """An append that some replicas in sync do not have yet."""

    __slots__ = ("answer", "base_offset", "done", "needed_offset")

    def __init__(self, needed_offset: int, base_offset: int, answer: OnAppended) -> None:
        self.needed_offset = needed_offset
        self.base_offset = base_offset
        self.answer = answer
        self.done = False

    def settle(self, error: ErrorCode) -> None:
        if not self.done:
            self.done = True
            self.answer(error, self.base_offset if error is ErrorCode.NONE else -1)


class _Follower(NamedTuple):
    end_offset: int
    caught_up_at_s: float


class Replica:
    """One replica of a partition."""

    def __init__(self, node: "Node", tp: TopicPartition) -> None:
        self.node = node
        self.tp = tp
        self.log = ReplicaLog(node.cluster.rules.window)
        self.high_watermark = 0
        self.leader = -1
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        #: Its disk has failed.
        self.offline = False
        #: The offset at which its own leader epoch begins.
        self._epoch_start = 0
        #: Called when there may be more to read, or when the leader has changed.
        self.watchers: dict[Callable[[], None], None] = {}
        self._waiting: list[_Waiting] = []
        self._followers: dict[int, _Follower] = {}
        self._pulling = False

    @property
    def leads(self) -> bool:
        """Whether its broker believes that it leads."""
        return self.leader == self.node.node_id

    @property
    def knows_end(self) -> bool:
        """Whether its high watermark has reached that of the leader before it (KIP-207)."""
        return self.high_watermark >= self._epoch_start

    # roles

    def learn(self, state: PartitionState) -> None:
        """The broker has heard of the partition's state."""
        if state.leader_epoch > self.leader_epoch:
            self.leader, self.leader_epoch = state.leader, state.leader_epoch
            self._answer_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if self.leads:
                now_s = self.node.cluster.loop.time()
                self._epoch_start = self.log.end_offset
                self._followers = {n: _Follower(-1, now_s) for n in state.replicas if n != self.node.node_id}
            self._wake()
        if state.leader_epoch == self.leader_epoch:
            self.isr = state.isr
            if self.leads:
                self._advance()
        if not self.leads:
            self.will_pull()

    def died(self) -> None:
        """The broker's process has ended: only what was written is left."""
        self.leader = self.leader_epoch = -1
        self.isr = ()
        self._waiting.clear()
        self.watchers.clear()
        self._followers.clear()
        self._pulling = False

    def fail_disk(self) -> None:
        """Appends and reads fail until `repair_disk`."""
        self.offline = True
        self._answer_all(ErrorCode.KAFKA_STORAGE_ERROR)
        self._wake()

    def repair_disk(self) -> None:
        """The disk works again: copy what the replica has missed."""
        self.offline = False
        self.will_pull()

    def answering_error(self) -> ErrorCode:
        """Why clients cannot use this replica; NONE if they can."""
        if self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE if self.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # the leader's side

    def append(
        self, batch: bytes, header: BatchHeader, guard: int, *, acks: int, timeout_s: float, answer: OnAppended
    ) -> None:
        """Append a client's batch."""
        cluster = self.node.cluster
        if acks == -1 and len(self.isr) < cluster.rules.min_isr:
            answer(ErrorCode.NOT_ENOUGH_REPLICAS, -1)
            return
        known = self.log.producers.duplicate_of(header) if header.producer_id >= 0 else None
        if known is not None:
            cluster.counts["repeated batches"] += 1
            self._acknowledge(known.base_offset, known.last_offset + 1, acks, timeout_s, answer)
            return
        if header.producer_id >= 0:
            error = self.log.producers.refusal(header, guard)
            if error is not ErrorCode.NONE:
                answer(error, -1)
                return
        entry = self.log.write(batch, self.leader_epoch)
        self._advance()
        self.tell_followers()
        self._acknowledge(entry.base_offset, entry.last_offset + 1, acks, timeout_s, answer)

    def append_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        bumps_epoch: bool,
        answer: OnAppended,
        written: Callable[[int], None],
    ) -> None:
        """Append the marker that ends a transaction. `written` gets its offset at once; `answer` waits for replicas."""
        error = self.answering_error()
        if error is ErrorCode.NONE:
            error = self.log.producers.marker_refusal(producer_id, epoch, coordinator_epoch, bumps_epoch=bumps_epoch)
        if error is not ErrorCode.NONE:
            answer(error, -1)
            return
        now_ms = self.node.cluster.loop.now_ms()
        entry = self.log.write_marker(producer_id, epoch, coordinator_epoch, self.leader_epoch, now_ms, commit=commit)
        written(entry.base_offset)
        self._advance()
        self.tell_followers()
        self._acknowledge(entry.base_offset, entry.last_offset + 1, -1, 10.0, answer)

    def _acknowledge(
        self, base_offset: int, needed_offset: int, acks: int, timeout_s: float, answer: OnAppended
    ) -> None:
        waiting = _Waiting(needed_offset, base_offset, answer)
        if acks != -1 or self.high_watermark >= needed_offset:
            waiting.settle(ErrorCode.NONE)
            return
        self._waiting.append(waiting)
        self.node.later(timeout_s, waiting.settle, ErrorCode.REQUEST_TIMED_OUT)

    def tell_followers(self) -> None:
        """There may be something new for the followers."""
        for node_id in self._followers:
            self.node.cluster.nodes[node_id].replica(self.tp).will_pull()

    def copied(self, node_id: int, end_offset: int, leader_epoch: int) -> None:
        """A follower has everything below `end_offset`."""
        follower = self._followers.get(node_id)
        if not self.leads or leader_epoch != self.leader_epoch or follower is None:
            return
        end = max(follower.end_offset, end_offset)
        caught_up = end >= self.log.end_offset
        now_s = self.node.cluster.loop.time()
        self._followers[node_id] = _Follower(end, now_s if caught_up else follower.caught_up_at_s)
        if node_id not in self.isr and end >= self.high_watermark:
            self._alter_isr((*self.isr, node_id))
        self._advance()

    def check_lag(self, max_lag_s: float) -> None:
        """Remove replicas that lag for too long from those in sync."""
        if not self.leads:
            return
        now_s, end = self.node.cluster.loop.time(), self.log.end_offset
        slow = [
            node_id
            for node_id, follower in self._followers.items()
            if node_id in self.isr and follower.end_offset < end and now_s - follower.caught_up_at_s > max_lag_s
        ]
        if slow:
            self._alter_isr(tuple(n for n in self.isr if n not in slow))
            self._advance()

    def _alter_isr(self, isr: tuple[int, ...]) -> None:
        cluster = self.node.cluster
        if self.node.is_up and cluster.controller.alter_isr(self.tp, self.node.node_id, self.leader_epoch, isr):
            self.isr = isr

    def _advance(self) -> None:
        """Move the high watermark to the offset that all replicas in sync have reached."""
        ends = [self.log.end_offset]
        ends += [follower.end_offset for node_id, follower in self._followers.items() if node_id in self.isr]
        reached = min(ends)
        if reached <= self.high_watermark:
            return
        self.high_watermark = reached
        done = [w for w in self._waiting if w.needed_offset <= reached]
        if done:
            self._waiting = [w for w in self._waiting if w.needed_offset > reached]
            enough = len(self.isr) >= self.node.cluster.rules.min_isr
            for waiting in done:
                waiting.settle(ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._wake()

    # the follower's side

    def will_pull(self) -> None:
        """Ask the leader for more, soon."""
        if not self._pulling and not self.leads and self.leader >= 0:
            self._pulling = True
            self.node.later(self.node.cluster.replication_s(), self._pull)

    def _pull(self) -> None:
        self._pulling = False
        cluster = self.node.cluster
        if self.leads or self.offline or self.leader < 0:
            return
        leader = cluster.nodes[self.leader]
        theirs = leader.replica(self.tp)
        if not theirs.leads or theirs.leader_epoch != self.leader_epoch or theirs.offline:
            return
        if not cluster.connected(self.node, leader):
            return  # `Cluster.healed` lets every replica ask again
        same = self.log.common_prefix(theirs.log)
        gone = self.log.truncate(same)
        if gone:
            records = sum(entry.header.record_count for entry in gone)
            cluster.note("truncated", f"{self.tp} on broker {self.node.node_id}: {records} records")
        for entry in theirs.log.entries[same:]:
            self.log.copy(entry)
        self.high_watermark = min(theirs.high_watermark, self.log.end_offset)
        leader.later(cluster.replication_s(), theirs.copied, self.node.node_id, self.log.end_offset, self.leader_epoch)

    # inside

    def _answer_all(self, error: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.settle(error)

    def _wake(self) -> None:
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watcher()
