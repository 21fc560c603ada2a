"""Finds positions: where to start, where to go on after one was lost, and whether a log still holds one (SPEC O5).

Works in the background; the fetcher leaves partitions alone that have no position or have to be validated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.config.consumer import ConsumerConfig, reset_time
from ottla.client.core.consumer.positions import NO_POSITION, UNKNOWN_EPOCH, PartitionState, Positions
from ottla.client.core.metadata import ClusterSnapshot
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.errors import (
    ClientError,
    KafkaError,
    LogTruncatedError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from ottla.client.net.cluster import Cluster
from ottla.client.net.log_offsets import list_offsets
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.special_timestamp import SpecialTimestamp

log = logging.getLogger("ottla.consumer")

_CUT = "the log was cut at offset %d, of what was read offsets %d to %d are gone"


class OffsetReset(NamedTuple):
    """A position was replaced: it was before the start of the log, beyond its end, or there was none."""

    partition: TopicPartition
    #: The position that was out of range; -1 when there was none.
    before: int
    after: int

    @property
    def skipped(self) -> int:
        """How many offsets were jumped over; 0 when the position was beyond the end, and reading went back."""
        return max(0, self.after - self.before) if self.before >= 0 else 0

    def __str__(self) -> str:
        if self.before < 0:
            return f"{self.partition}: reading begins at offset {self.after}"
        # whatever the policy: only what is before the start moves on, and only what is beyond the end goes back
        if self.after > self.before:
            return (
                f"{self.partition}: offset {self.before} is not in the log any more, reading goes on at {self.after}: "
                f"{self.skipped} offsets are skipped"
            )
        return (
            f"{self.partition}: offset {self.before} is beyond the end of the log (it was cut, the topic was made "
            f"anew, or the offset was never there), reading goes on at {self.after}"
        )


class Resets:
    """The background task that looks positions up."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        config: ConsumerConfig,
        *,
        now_ms: Callable[[], int],
        committed: Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, OffsetAndMetadata]]] | None,
        happened: Callable[[OffsetReset], None],
        done: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`committed` reads the group's offsets; `done` is called when positions were found, `failed` when not."""
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._now_ms = now_ms
        self._committed = committed
        self._happened = happened
        self._done = done
        self._failed = failed
        self._lost_at: dict[TopicPartition, int] = {}
        self._task: asyncio.Task[None] | None = None
        cluster.on_update(self._metadata_changed)

    def pump(self) -> None:
        """Look for positions if one is missing or doubtful."""
        if self._task is None and any(s.position == NO_POSITION or s.validate for s in self._positions):
            self._task = asyncio.create_task(self._find(), name="ottla-positions")

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def out_of_range(self, state: PartitionState) -> None:
        """The broker does not have the position any more, or not yet."""
        when = reset_time(self._config.auto_offset_reset, self._now_ms())
        if when is None:
            # asked again, and told again, until the user seeks
            state.retry_at_s = asyncio.get_running_loop().time() + self._config.retry_backoff_max_ms / 1000
            self._failed(
                OffsetOutOfRangeError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{state.tp}: offset {state.position} is before the start of the log or beyond its end, and "
                    "auto.offset.reset is none: seek() to where reading shall go on",
                )
            )
            return
        self._lost_at[state.tp] = state.position
        state.seek_to_time(when)
        self.pump()

    async def _find(self) -> None:
        final = False  # then the next poll() tries again, and raises again
        try:
            await self._start_new()
            await self._look_up()
            await self._validate()
        except ClientError as error:
            log.debug("positions could not be found: %s", error)
            final = not error.retriable
            if final:
                self._failed(error)
            else:
                await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        finally:
            self._task = None
        self._done()
        if not final:
            self.pump()

    async def _start_new(self) -> None:
        """Partitions without a position begin where the group committed, else by the policy."""
        new = [s for s in self._positions if s.position == NO_POSITION and s.reset_to_ms is None]
        if not new:
            return
        versions = {s.tp: s.version for s in new}
        found = await self._committed([s.tp for s in new]) if self._committed is not None else {}
        missing = []
        for state in new:
            if versions[state.tp] != state.version:
                continue
            offset = found.get(state.tp)
            if offset is not None:
                state.seek(offset.offset, offset.leader_epoch)
            else:
                missing.append(state)
        if not missing:
            return
        when = reset_time(self._config.auto_offset_reset, self._now_ms())
        if when is None:
            raise NoOffsetForPartitionError(
                f"no committed offset for {', '.join(str(s.tp) for s in missing)}, and auto.offset.reset is none"
            )
        for state in missing:
            state.seek_to_time(when)

    async def _look_up(self) -> None:
        """Times become offsets."""
        asked = {s.tp: (s, s.version, s.reset_to_ms) for s in self._positions if s.reset_to_ms is not None}
        if not asked:
            return
        found = await list_offsets(
            self._cluster,
            {tp: when for tp, (_, _, when) in asked.items() if when is not None},
            read_committed=self._config.read_committed,
            timeout_ms=self._config.default_api_timeout_ms,
        )
        after_the_end = [tp for tp, offset in found.items() if offset.offset < 0]
        if after_the_end:
            found |= await list_offsets(
                self._cluster,
                dict.fromkeys(after_the_end, SpecialTimestamp.LATEST),
                read_committed=self._config.read_committed,
                timeout_ms=self._config.default_api_timeout_ms,
            )
        for tp, (state, version, _) in asked.items():
            if state.version == version and self._positions.get(tp) is state:
                state.seek(found[tp].offset)
                self._report(OffsetReset(tp, self._lost_at.pop(tp, -1), found[tp].offset))

    def _report(self, reset: OffsetReset) -> None:
        log.log(logging.WARNING if reset.before >= 0 else logging.INFO, "%s", reset)
        self._happened(reset)

    # leader epochs (KIP-320)

    def _metadata_changed(self, before: ClusterSnapshot, after: ClusterSnapshot) -> None:
        for state in self._positions:
            epoch = after.leader_epoch(state.tp)
            if state.leader_epoch not in (UNKNOWN_EPOCH, epoch) and state.position_epoch != UNKNOWN_EPOCH:
                state.validate = True
            state.leader_epoch = epoch
        self.pump()

    async def _validate(self) -> None:
        """Ask the new leader where the epoch of the last record ends: before the position means truncation."""
        by_leader: dict[int, list[PartitionState]] = {}
        for state in self._positions:
            if state.validate and state.position_epoch != UNKNOWN_EPOCH and state.position != NO_POSITION:
                by_leader.setdefault(self._cluster.snapshot.leader(state.tp), []).append(state)
            else:
                state.validate = False
        for leader, states in by_leader.items():
            await self._validate_at(leader, states)

    async def _validate_at(self, leader: int, states: Iterable[PartitionState]) -> None:
        snapshot = self._cluster.snapshot
        asked = {s.tp: (s, s.version) for s in states}
        topics = tuple(
            OffsetForLeaderTopic(
                tp.topic,
                (OffsetForLeaderPartition(tp.partition, snapshot.leader_epoch(tp), s.position_epoch),),
            )
            for tp, (s, _) in asked.items()
        )
        answer: OffsetForLeaderEpochResponse = await self._cluster.request(
            leader, ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest(-1, topics)
        )
        for topic in answer.topics:
            for p in topic.partitions:
                state, version = asked[TopicPartition(topic.topic, p.partition)]
                if state.version != version:
                    continue
                if p.error_code != ErrorCode.NONE:
                    self._cluster.request_update()
                    raise KafkaError.of(p.error_code, str(state.tp))
                state.validate = False
                if 0 <= p.end_offset < state.position:
                    self._truncated(state, p.end_offset)

    def _truncated(self, state: PartitionState, end_offset: int) -> None:
        before = state.position
        if self._config.auto_offset_reset == "none":
            self._failed(
                LogTruncatedError(f"{state.tp}: {_CUT % (end_offset, end_offset, before - 1)}, seek() to go on")
            )
            return
        log.warning(f"%s: {_CUT}; reading goes on there", state.tp, end_offset, end_offset, before - 1)
        state.seek(end_offset)
        self._happened(OffsetReset(state.tp, before, end_offset))
