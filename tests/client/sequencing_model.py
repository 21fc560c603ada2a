"""A model of one partition's leader and of the connection to it, for the sequencing properties.

The leader keeps what SPEC P3 says: the producer's epoch, the next sequence, and the last five batches. The connection
is a queue of requests and one of answers; when it breaks, the leader has read some requests, and no answer comes.
When the partition moves to another broker, which has the same log, the answers on the connection to the old one come
later than those of the new one, or never.
"""

from collections import deque
from dataclasses import dataclass, field

from ottla.base.types import TopicPartition
from ottla.client.core.sequencing import (
    NO_IDENTITY,
    NO_SEQUENCE,
    PERHAPS_WRITTEN,
    ProducerIdentity,
    Sequencer,
    Verdict,
)
from ottla.wire.errors import ErrorCode

TP = TopicPartition("t", 0)
MODULUS = 2**31


@dataclass(eq=False)
class Batch:
    """A batch of `record_count` records that are (number, first), (number, first + 1), …"""

    number: int
    record_count: int
    tp: TopicPartition = TP
    identity: ProducerIdentity = NO_IDENTITY
    base_sequence: int = NO_SEQUENCE
    sequence_reset: bool = False
    on_wire: bool = False
    perhaps_written: bool = False
    whole_perhaps_written: bool = False
    settled: str | None = None
    first: int = 0

    @property
    def records(self) -> list[tuple[int, int]]:
        return [(self.number, self.first + i) for i in range(self.record_count)]


@dataclass
class Leader:
    """What the broker does with a batch (SPEC P3)."""

    log: list[tuple[int, int]] = field(default_factory=list)
    epoch: int = -1
    next_sequence: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))

    def append(self, records: list[tuple[int, int]], identity: ProducerIdentity, sequence: int) -> ErrorCode:
        if identity.epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if identity.epoch > self.epoch:
            if sequence != 0 and self.epoch >= 0:  # of a producer it does not know it takes any (KAFKA-14359)
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.recent.clear()
        elif (sequence, len(records)) in self.recent:
            return ErrorCode.NONE
        elif sequence != self.next_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.epoch = identity.epoch
        self.recent.append((sequence, len(records)))
        self.next_sequence = (sequence + len(records)) % MODULUS
        self.log += records
        return ErrorCode.NONE


@dataclass
class Request:
    """A batch as it was sent."""

    batch: Batch
    identity: ProducerIdentity
    sequence: int


class Producer:
    """A producer of one partition, as the sender works: a queue, a sequencer, a connection."""

    def __init__(self) -> None:
        self.sequencer = Sequencer(transactional=False)
        self.sequencer.identified(ProducerIdentity(7, 0))
        self.leader = Leader()
        self.queue: list[Batch] = []
        self._added = 0
        self.all: list[Batch] = []
        self.wire: deque[Request] = deque()
        self.answers: deque[tuple[Request, ErrorCode]] = deque()
        self.late_answers: deque[tuple[Request, ErrorCode]] = deque()

    def add(self, record_count: int) -> None:
        batch = Batch(self._added, record_count)
        self._added += 1
        self.all.append(batch)
        self.queue.append(batch)

    def send(self) -> bool:
        self.sequencer.resolve()
        if self.sequencer.needs_identity:
            self.sequencer.identified(ProducerIdentity(self.sequencer.identity.producer_id + 1, 0))
        in_flight = len(self.wire) + len(self.answers)
        if not self.queue or in_flight >= 5 or not self.sequencer.may_send(self.queue[0]):
            return False
        batch = self.queue.pop(0)
        self.sequencer.assign(batch)
        batch.on_wire = True
        self.wire.append(Request(batch, batch.identity, batch.base_sequence))
        return True

    def serve(self, refuse: ErrorCode | None = None, *, after_append: bool = False) -> None:
        """The leader reads a request; it may refuse it for a reason of its own, if need be when it is in the log."""
        if self.wire:
            request = self.wire.popleft()
            code = ErrorCode.NONE
            if refuse is None or after_append:
                code = self.leader.append(request.batch.records, request.identity, request.sequence)
            self.answers.append((request, code if code != ErrorCode.NONE or refuse is None else refuse))

    def hear(self) -> None:
        """An answer arrives."""
        if self.answers:
            self._answered(*self.answers.popleft())

    def break_connection(self, served: int) -> None:
        """The leader reads `served` more requests, then everything on the way is lost."""
        for _ in range(served):
            self.serve()
        lost = [request for request, _ in self.answers] + list(self.wire)
        self.answers.clear()
        self.wire.clear()
        self._lost(lost)

    def move(self) -> None:
        """Another broker leads now: what the old one has not read it refuses."""
        self.late_answers += self.answers
        self.late_answers += [(request, ErrorCode.NOT_LEADER_OR_FOLLOWER) for request in self.wire]
        self.answers.clear()
        self.wire.clear()

    def hear_late(self) -> None:
        """An answer of a former leader arrives."""
        if self.late_answers:
            self._answered(*self.late_answers.popleft())

    def lose_late(self) -> None:
        """The connection to a former leader breaks."""
        lost = [request for request, _ in self.late_answers]
        self.late_answers.clear()
        self._lost(lost)

    def give_up(self) -> None:
        """`delivery.timeout.ms` has passed for the oldest queued batch."""
        if self.queue:
            batch = self.queue.pop(0)
            self._fail(batch)

    def finish(self) -> None:
        """Nothing is lost any more."""
        for _ in range(20 * len(self.all) + 20):
            if not (self.queue or self.wire or self.answers or self.late_answers):
                return
            while self.send():
                pass
            self.serve()
            self.hear()
            self.hear_late()
        raise AssertionError(f"stuck with {len(self.queue)} batches")

    def _lost(self, requests: list[Request]) -> None:
        for request in requests:
            self._answered(request, ErrorCode.NETWORK_EXCEPTION)

    def _answered(self, request: Request, code: ErrorCode) -> None:
        batch = request.batch
        batch.on_wire = False
        batch.perhaps_written |= code in PERHAPS_WRITTEN
        if code == ErrorCode.NONE:
            self.sequencer.acknowledged(batch, len(self.leader.log) - 1)
            batch.settled = "acknowledged"
        elif code == ErrorCode.MESSAGE_TOO_LARGE and self._can_split(request):
            self._split(batch)
        elif self.sequencer.refused(batch, request.identity, code, -1) is Verdict.RETRY:
            self._put_back(batch)
        else:
            self._fail(batch)

    def _can_split(self, request: Request) -> bool:
        batch = request.batch
        return batch.record_count > 1 and batch.identity == request.identity

    def _split(self, batch: Batch) -> None:
        count = batch.record_count // 2
        halves = (
            Batch(batch.number, count, first=batch.first),
            Batch(batch.number, batch.record_count - count, first=batch.first + count),
        )
        self.sequencer.split(batch, halves, may_be_written=batch.perhaps_written)
        at = self.all.index(batch)
        self.all[at : at + 1] = halves
        for half in halves:
            self._put_back(half)

    def _put_back(self, batch: Batch) -> None:
        at = sum((other.number, other.first) < (batch.number, batch.first) for other in self.queue)
        self.queue.insert(at, batch)

    def _fail(self, batch: Batch) -> None:
        self.sequencer.given_up(batch, may_be_written=batch.perhaps_written or batch.whole_perhaps_written)
        batch.settled = "failed"
