"""Deletes offsets that nobody asks to delete: whose retention is over (O2, KIP-211), and of topics that are gone.

Theory of operation. Groups wait in a queue, and a timer that fires at once takes as many as go into a batch. Between
two batches the shard takes other inputs. What is looked at for one batch may be more than a turn of the event loop has
room for, a large group above all. So it is done in steps, each the `rest` of the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final

from ottla.base.limits import (
    MAX_OFFSETS_PER_LOOK,
    MAX_OFFSETS_PER_STEP,
    MAX_TOMBSTONE_BYTES_PER_BATCH,
    MAX_TOMBSTONES_PER_BATCH,
)
from ottla.coordinator.decision import Decision, LogRecord, SetTimer, Timer, in_steps
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.kinds import AnyGroup, Appending, Groups
from ottla.coordinator.offsets import expiry
from ottla.coordinator.offsets.commit import offset_tombstones
from ottla.coordinator.offsets.store import OffsetStore
from ottla.wire.errors import ErrorCode

#: The keys of its timers.
RETENTION: Final = ("retention",)
GONE_TOPICS: Final = ("gone-topics",)
TIMERS: Final = (RETENTION, GONE_TOPICS)


class Retention:
    """Of one shard. `topic_id` is the shard's; `tombstones` are the records that delete a group which is empty."""

    def __init__(
        self,
        config: GroupConfig,
        groups: Groups,
        store: OffsetStore,
        appending: Appending,
        topic_id: Callable[[str], bytes | None],
        tombstones: Callable[[AnyGroup], list[LogRecord]],
    ) -> None:
        self._config = config
        self._groups = groups
        self._store = store
        self._appending = appending
        self._topic_id = topic_id
        self._tombstones = tombstones
        #: Groups that the present pass has still to look at: for retention, and for offsets of deleted topics.
        self._to_expire: deque[str] = deque()
        self._to_compare: deque[str] = deque()

    def loaded(self) -> Decision:
        """A topic may have been deleted without this shard: before the last stop, or while it was loading."""
        self._to_compare = deque(self._store.group_ids())
        return self._forget_gone_topics((SetTimer(RETENTION, self._config.offsets_retention_check_interval_ms),))

    def topics_deleted(self) -> Decision:
        """Topics were deleted, and perhaps new ones have their names: delete the offsets committed for them."""
        self._to_compare = deque(self._store.group_ids())
        return self._forget_gone_topics(())

    def timer(self, key: tuple[str, ...], now_ms: int) -> Decision:
        """One of its timers has fired."""
        if key == RETENTION:
            if not self._to_expire:
                self._to_expire = deque(self._groups)
            return in_steps(self._expire(now_ms))
        return self._forget_gone_topics(()) if self._to_compare else self.topics_deleted()

    def _forget_gone_topics(self, timers: tuple[Timer, ...]) -> Decision:
        """Tombstones for the next batch of such offsets. `timers` are set in any case."""
        return in_steps(self._forget(timers))

    def _forget(self, timers: tuple[Timer, ...]) -> Generator[None, None, Decision]:
        def gone(group_id: str) -> Iterator[LogRecord | None]:
            return expiry.gone_topics_tombstones(group_id, self._store, self._topic_id)

        def failure(error: ErrorCode) -> Decision:
            self._to_compare.clear()  # the next one looks at all groups again
            return Decision(timers=(*timers, SetTimer(GONE_TOPICS, self._config.append_retry_ms)))

        records = yield from self._next_batch(self._to_compare, gone)
        more = (SetTimer(GONE_TOPICS, 0),) if self._to_compare else ()
        return self._appending.prepare(Decision(tuple(records), timers=(*timers, *more)), None, failure)

    def _expire(self, now_ms: int) -> Generator[None, None, Decision]:
        """O2: tombstones for offsets whose retention is over, and for groups that have nothing left."""
        records = yield from self._next_batch(self._to_expire, lambda group_id: self._expired(group_id, now_ms))
        delay_ms = 0 if self._to_expire else self._config.offsets_retention_check_interval_ms
        decision = Decision(tuple(records), timers=(SetTimer(RETENTION, delay_ms),))

        def failure(error: ErrorCode) -> Decision:
            self._to_expire.clear()
            return Decision(timers=(SetTimer(RETENTION, self._config.append_retry_ms),))

        return self._appending.prepare(decision, None, failure)

    def _expired(self, group_id: str, now_ms: int) -> Iterator[LogRecord | None]:
        group = self._groups.get(group_id)
        if group is None:
            return
        gone = yield from expiry.expired(group, self._store, now_ms, self._config.offsets_retention_ms)
        yield from offset_tombstones(group_id, gone.partitions)
        if gone.nothing_left and group.is_forgotten:
            yield from self._tombstones(group)

    def _next_batch(
        self, groups: deque[str], tombstones: Callable[[str], Iterable[LogRecord | None]]
    ) -> Generator[None, None, list[LogRecord]]:
        """The tombstones of the first groups in the queue, as many as go into a batch. Groups that are done leave it.

        `tombstones` ends each step with None.
        """
        records: list[LogRecord] = []
        looked = in_step = size_bytes = 0
        while groups and looked < MAX_OFFSETS_PER_LOOK and len(records) < MAX_TOMBSTONES_PER_BATCH:
            more = 1 + self._store.size(groups[0])
            if in_step and in_step + more > MAX_OFFSETS_PER_STEP:
                in_step = 0
                yield
            looked += more
            in_step += more
            for record in tombstones(groups[0]):
                if record is None:
                    in_step -= MAX_OFFSETS_PER_STEP
                    yield
                    continue
                size_bytes += len(record.key)
                if len(records) == MAX_TOMBSTONES_PER_BATCH or size_bytes > MAX_TOMBSTONE_BYTES_PER_BATCH:
                    return records  # the group stays in the queue
                records.append(record)
            groups.popleft()
        return records
