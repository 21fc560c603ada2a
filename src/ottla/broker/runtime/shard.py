"""Runs one coordinator shard: decide, append, apply, then reply (DESIGN, idea 1).

Theory of operation. Every input of a shard (a request, a timer, a marker, the outcome of an effect) is a call that
returns a Decision. The runner takes one input at a time and in order, even if carrying out one input causes the next.
It appends the decision's records as one batch to the shard's partition, gives each record to `apply`, and only then
answers and sets timers. When the append fails, the shard says what to answer. When the records are in the log and only
the device refuses them, a shard whose records build on each other takes them over all the same: its memory is what the
log says. Then it takes the next request only when the device has them.

A decision may have a `rest`: it is carried out in slices, and no other input is taken before it is. What has come
meanwhile is taken in slices, too. Markers come first: they are in the log already, and what the other inputs write
will be behind them. In the other order an offset would be committed here that waits for another marker in the log.

While a shard's log is being read it takes no request, and the caller answers COORDINATOR_LOAD_IN_PROGRESS. Inputs that
nobody waits for are kept until the shard is loaded. The log is read in slices (`runtime.slices`), at the start and
after a fault; and so is done what follows from it, such as the timers of all members, and what has come meanwhile.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import chain
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, OttlaError, StorageError
from ottla.base.limits import HERD_ANSWERS_AT_ONCE, MAX_FRESH_STARTS
from ottla.base.require import require
from ottla.base.steps import Pace
from ottla.base.types import TopicPartition
from ottla.broker.quiet import Quiet
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.slices import Slices
from ottla.broker.runtime.timers import Timers
from ottla.coordinator.decision import NOTHING, CancelTimer, Decision, Effect, LogRecord, Reply, SetTimer
from ottla.coordinator.facts import GroupFacts
from ottla.log.replay import ReplayedBatch, replay
from ottla.log.results import Appended, Origin
from ottla.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, encode_batch

_log = logging.getLogger(__name__)

#: Bytes of records that are applied in one step while a log is read: a millisecond or two, but for a larger record.
_BYTES_AT_ONCE: Final = 60_000
#: What a record costs beside its bytes, in bytes.
_BYTES_OF_RECORD: Final = 400


class ShardUnloadedError(OttlaError):
    """A request waited in a shard that is gone. Its connection is closed, and the client asks again."""


class Logged(NamedTuple):
    """A batch that is in the shard's log, or a piece of one."""

    records: Sequence[LogRecord]
    #: Set for a transactional batch and for a marker.
    producer_id: int | None = None
    #: The outcome when the batch is a marker, which has no records here.
    commit: bool | None = None


class Shard(Protocol):
    """What every coordinator shard offers."""

    @property
    def is_busy(self) -> bool:
        """Whether it waits for the outcome of a decision."""
        ...

    def timer(self, key: tuple[str, ...], now_ms: int, /) -> Decision: ...

    def append_failed(self, decision: Decision, error: ErrorCode, /) -> Decision: ...

    def loaded(self, now_ms: int, /) -> Iterator[Decision]: ...


S = TypeVar("S", bound=Shard)
S_contra = TypeVar("S_contra", bound=Shard, contravariant=True)


class Applier(Protocol[S_contra]):
    """How a durable batch changes a shard; the decision may only answer and set timers, and have a rest."""

    def __call__(self, shard: S_contra, batch: "Logged", now_ms: int, /) -> Decision: ...


class ShardState(Enum):
    """Whether the shard's log has been read."""

    LOADING = "loading"
    ACTIVE = "active"
    #: Another node leads the partition, or the broker stops.
    UNLOADED = "unloaded"


class ShardRunner(Generic[S]):
    """The one writer of one shard."""

    def __init__(
        self,
        tp: TopicPartition,
        make_shard: Callable[[TopicPartition], S],
        applier: Applier[S],
        runtime: "ShardRuntime",
        effect: Callable[["ShardRunner[S]", Effect], None],
    ) -> None:
        self.tp = tp
        self.shard = make_shard(tp)
        self.state = ShardState.LOADING
        self._make_shard = make_shard
        self._applier = applier
        self._runtime = runtime
        self._effect = effect
        self._inbox: deque[tuple[Callable[[int], Decision], int | None]] = deque()
        #: How many of them, the first ones, are markers.
        self._markers = 0
        self._busy = False
        #: What is left of the last input; which request it is, and whether nothing of it is decided yet.
        self._rest: Callable[[], Decision] | None = None
        self._rest_token: int | None = None
        self._is_undecided = False
        #: Timers that have fired and wait for their turn, each with a mark of its own.
        self._fired: dict[tuple[str, ...], object] = {}
        #: The log has been read to its end; what is written from now on is told.
        self._has_read = False
        #: Inputs that wait until the shard is active.
        self._told: deque[Callable[[int], Decision]] = deque()
        #: Requests that wait for their reply, by token.
        self._waiting: dict[int, asyncio.Future[object]] = {}
        #: How often the log was read again since the last request that succeeded.
        self._fresh_starts = 0
        #: The shard has taken over records that the device has not taken yet: nobody may hear of them.
        self._is_unsure = False

    def is_sure(self) -> bool:
        """Whether the device has taken what the shard knows; if not, it is asked once more."""
        self._is_unsure = self._is_unsure and not self._runtime.partitions.is_synced(self.tp)
        return not self._is_unsure

    def submit(self, call: Callable[[int, int], Decision]) -> "asyncio.Future[object]":
        """Run a request: `call(token, now_ms)`; the future gives its response. Ask `Coordinators.find` first."""
        token = self._runtime.new_token()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if self.state is not ShardState.ACTIVE:
            future.set_exception(ShardUnloadedError(f"{self.tp} takes no requests now"))
            return future
        self._waiting[token] = future
        self._take(lambda now_ms: call(token, now_ms), token)
        return future

    def tell(self, call: Callable[[int], Decision]) -> None:
        """Run an input that nobody waits for; after the log is read, when it is being read now."""
        if self.state is ShardState.LOADING:
            self._told.append(call)
        elif self.state is ShardState.ACTIVE:
            self._take(call, None)

    async def read(self) -> None:
        """Load the shard, in slices; one whose log cannot be read is not available."""
        try:
            await self._runtime.slices.run(self.load())
        except (StorageError, CorruptDataError) as fault:
            _log.critical(
                "%s cannot be read (%s): its groups or transactions are not available. Stop the broker and put the log "
                "file back",
                self.tp,
                fault,
            )
            self.unload()
        except Exception:  # noqa: BLE001 - logged; clients are told, and an operator can look at the log
            _log.critical("%s cannot be read; its groups or transactions are not available", self.tp, exc_info=True)
            self.unload()

    def load(self) -> Iterator[None]:
        """Apply the log, a batch or a piece of one in each step, and begin with what it says; the shard is active once
        the iterator ends."""
        clock = self._runtime.clock
        partition = self._runtime.partitions.find(self.tp.topic, self.tp.partition)
        if partition is not None:
            for batch in chain.from_iterable(map(logged, replay(partition.log))):
                rest = self._applier(self.shard, batch, clock.now_ms()).rest
                yield
                while rest is not None and self.state is ShardState.LOADING:
                    rest = rest().rest
                    yield
                if self.state is not ShardState.LOADING:
                    return
        self._has_read = True
        yield from self._begin()

    def _begin(self) -> Iterator[None]:
        """The log has been read: do what follows from it, such as the timers of all members, and take requests.

        First it hears what has come meanwhile, in order, one input in each step; more may come until none is left.
        """
        shard = self.shard
        try:
            for decision in shard.loaded(self._runtime.clock.now_ms()):
                if self.state is not ShardState.LOADING:
                    return
                self._carry_out(decision)
                yield
                yield from self._rest_of(shard)
        except Exception as fault:  # noqa: BLE001 - logged; the shard may be half changed
            self._start_over(fault)
            return
        while self._told and self._begins_with(shard):
            self._run(self._told.popleft(), None)
            yield
            yield from self._rest_of(shard)
        if self._begins_with(shard):
            self.state = ShardState.ACTIVE

    def _begins_with(self, shard: S) -> bool:
        """Whether it is still this shard that begins: after a fault another one is made, and reads the log itself."""
        return self.state is ShardState.LOADING and self.shard is shard

    def unload(self, state: ShardState = ShardState.UNLOADED) -> None:
        """Take no more input. Clients that wait are disconnected, and look for the coordinator again."""
        self.state, self._has_read = state, False
        self._runtime.timers.cancel_all(lambda key: isinstance(key, tuple) and key[:2] == self.tp)
        self._inbox.clear()
        self._markers = 0
        self._told.clear()
        self._fired.clear()
        self._rest, self._is_undecided = None, False
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ShardUnloadedError(f"{self.tp} is not coordinated here any more"))

    def marker_written(self, producer_id: int, *, commit: bool) -> None:
        """A transaction's marker is in this shard's partition. It comes before the inputs that wait."""
        batch = Logged((), producer_id, commit)

        def ended(now_ms: int) -> Decision:
            return self._applier(self.shard, batch, now_ms)

        if self.state is ShardState.ACTIVE:
            self._inbox.insert(self._markers, (ended, None))
            self._markers += 1
            self._take_waiting()
        elif self._has_read:
            self.tell(ended)

    def _take(self, call: Callable[[int], Decision], token: int | None) -> None:
        self._inbox.append((call, token))
        self._take_waiting()

    def _take_waiting(self) -> None:
        if not self._busy:
            self._take_all()

    def _run_next(self) -> None:
        self._markers = max(self._markers - 1, 0)
        self._run(*self._inbox.popleft())

    def _take_all(self) -> None:
        """Run what is in the inbox, one input after the other; after one with a rest the others wait for it."""
        self._busy = True
        try:
            while self._inbox and self._rest is None:
                self._run_next()
        finally:
            self._busy = self._rest is not None
        if self._rest is not None:
            self._runtime.slices.start(self._go_on(), f"a long decision of {self.tp}")

    async def _go_on(self) -> None:
        await self._runtime.slices.run(self._catch_up())

    def _catch_up(self) -> Iterator[None]:
        """Carry out what is left of the last input, and then, one input in each step, what has come meanwhile."""
        yield from self._rest_of(self.shard)
        while self._inbox:
            self._run_next()
            yield
            yield from self._rest_of(self.shard)
        self._busy = False

    def _rest_of(self, shard: S) -> Iterator[None]:
        """Carry out what is left of the last input, a decision in each step.

        If some of it is decided, a fault leaves it half done.
        """
        while self._rest is not None and self.shard is shard:
            rest, self._rest = self._rest, None
            if self._is_undecided:
                self._run(lambda _, rest=rest: rest(), self._rest_token)  # type: ignore[misc]
                yield
                continue
            try:
                self._carry_out(rest())
            except Exception as fault:  # noqa: BLE001 - logged
                self._start_over(fault)
            yield

    def _run(self, call: Callable[[int], Decision], token: int | None) -> None:
        try:
            decision = call(self._runtime.clock.now_ms())
        except Exception as fault:  # noqa: BLE001 - logged
            self._not_decided(call, token, fault)
        else:
            self._rest_token, self._is_undecided = token, decision.is_undecided
            try:
                self._carry_out(decision)
            except Exception as fault:  # noqa: BLE001 - logged; the shard may be half changed
                self._start_over(fault)
            else:
                if token is not None and self._rest is None:
                    self._fresh_starts = 0

    def _not_decided(self, call: Callable[[int], Decision], token: int | None, fault: Exception) -> None:
        """An input failed before anything was done about it. A decision changes nothing, so a request fails alone.

        It may come again and again, and reading the log each time would keep all others from the shard. An input that
        nobody would repeat is different: the shard is read again, which brings its timers back, but after some times
        the input is passed over. And a shard that is in the middle of a decision now does not know what it has.
        """
        if self.shard.is_busy or (token is None and self._fresh_starts < MAX_FRESH_STARTS):
            self._start_over(fault)
            return
        _log.error("an input of %s failed", self.tp, exc_info=fault)
        future = self._waiting.pop(token, None) if token is not None else None
        if future is not None and not future.done():
            future.set_exception(fault)

    def _start_over(self, fault: Exception) -> None:
        """Read the log again, because the shard's memory cannot be trusted any more. Other requests go on meanwhile.

        This has a limit: a fault that comes back each time, with no successful request in between, would keep the loop
        busy for ever.
        """
        self._fresh_starts += 1
        if self._fresh_starts > MAX_FRESH_STARTS:
            _log.critical("%s fails on what its log says; it is not available", self.tp, exc_info=fault)
            self.unload()
            return
        _log.critical("%s is read again from its log", self.tp, exc_info=fault)
        self.unload(ShardState.LOADING)
        self.shard = self._make_shard(self.tp)
        self._runtime.slices.start(self.read(), f"reading {self.tp} again")

    def _carry_out(self, decision: Decision) -> None:
        follow_up = None
        if decision.records:
            now_ms = self._runtime.clock.now_ms()
            appended = self._append(decision, now_ms)
            if appended.error is ErrorCode.NONE:
                follow_up = self._apply(decision, now_ms)
            elif decision.unsynced is not None and appended.base_offset >= 0:
                self._is_unsure = True
                follow_up = self._apply(decision, now_ms)
                decision = decision._replace(replies=_instead(decision.replies, decision.unsynced(appended.error)))
            else:
                decision = self.shard.append_failed(decision, appended.error)
        self._answer(decision.replies)
        for timer in decision.timers:
            match timer:
                case SetTimer(key, delay_ms):
                    self._set_timer(key, delay_ms)
                case CancelTimer(key):
                    self._fired.pop(key, None)
                    self._runtime.timers.cancel((*self.tp, *key))
        for effect in decision.effects:
            self._effect(self, effect)
        if decision.facts:
            self._runtime.heard(decision.facts)
        if follow_up is not None and follow_up != Decision():
            self._carry_out(follow_up)
        if decision.rest is not None:
            require(self._rest is None, "a decision and what follows from it have a rest each")
            self._rest = decision.rest

    def _answer(self, replies: Sequence[Reply]) -> None:
        """Answer requests: of many some in a turn of the loop, because each is encoded and sent in the next one."""
        for reply in replies[:HERD_ANSWERS_AT_ONCE]:
            future = self._waiting.pop(reply.token, None)
            if future is not None and not future.done():  # if it is done, its connection has gone
                future.set_result(reply.response)
        if len(replies) > HERD_ANSWERS_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._answer, replies[HERD_ANSWERS_AT_ONCE:])

    def _set_timer(self, key: tuple[str, ...], delay_ms: int) -> None:
        self._fired.pop(key, None)
        self._runtime.timers.set((*self.tp, *key), delay_ms, partial(self._timer_fired, key, object()))

    def _timer_fired(self, key: tuple[str, ...], mark: object) -> None:
        self._fired[key] = mark
        self.tell(partial(self._timer, key, mark))

    def _timer(self, key: tuple[str, ...], mark: object, now_ms: int) -> Decision:
        """A timer has its turn: nothing, if an input that was there before has set it again, or cancelled it."""
        if self._fired.get(key) is not mark:
            return NOTHING
        del self._fired[key]
        return self.shard.timer(key, now_ms)

    def _append(self, decision: Decision, now_ms: int) -> Appended:
        producer = decision.transactional
        batch = encode_batch(
            [Record(at, now_ms, key, value) for at, (key, value) in enumerate(decision.records)],
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.producer_epoch,
            transactional=producer is not None,
        )
        appended = self._runtime.partitions.append(self.tp, batch, origin=Origin.COORDINATOR)
        if appended.error not in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):  # the latter was reported already
            self._runtime.tell_refused(self.tp, appended)
        return appended

    def _apply(self, decision: Decision, now_ms: int) -> Decision:
        producer_id = None if decision.transactional is None else decision.transactional.producer_id
        return self._applier(self.shard, Logged(decision.records, producer_id), now_ms)


def logged(batch: ReplayedBatch) -> Iterator[Logged]:
    """A batch in parts that are no long work; the key is never null in a coordinator's log.

    Nobody sees what a shard knows before all is read.
    """
    piece: list[LogRecord] = []
    pace = Pace(_BYTES_AT_ONCE)
    for record in batch.records:
        piece.append(LogRecord(record.key or b"", record.value))
        if pace.is_over(_BYTES_OF_RECORD + len(record.value or b"")):
            yield Logged(piece, batch.producer_id, batch.commit)
            piece = []
    if piece or not batch.records:
        yield Logged(piece, batch.producer_id, batch.commit)


def _instead(replies: Sequence[Reply], refusals: Sequence[Reply]) -> tuple[Reply, ...]:
    """The replies, with the refusals in place of those to the same requests."""
    refused = {each.token for each in refusals}
    return (*(each for each in replies if each.token not in refused), *refusals)


def nobody(facts: Sequence[GroupFacts]) -> None:
    """Nobody keeps a history."""


class ShardRuntime:
    """What all shard runners of a broker share."""

    def __init__(
        self,
        partitions: Partitions,
        timers: Timers,
        clock: Clock,
        slices: Slices,
        heard: Callable[[Sequence[GroupFacts]], None] = nobody,
    ) -> None:
        #: Hears what decisions mean for the history of groups. It raises nothing, and answers wait for nothing of it.
        self.heard = heard
        self.partitions = partitions
        self.timers = timers
        self.clock = clock
        self.slices = slices
        self._last_token = 0
        self._quiet = Quiet(clock)

    def tell_refused(self, tp: TopicPartition, appended: Appended) -> None:
        """A line about records that the partition does not take, at most one in a while: a client may ask again."""
        more = self._quiet.turn(f"{tp} {appended.error.name}")
        if more is not None:
            why = f"{appended.error.name}, {appended.message}"
            _log.warning("%s: what is decided cannot be appended: %s%s", tp, why, more)

    def new_token(self) -> int:
        """A name for a waiting request, unique in the process."""
        self._last_token += 1
        return self._last_token
