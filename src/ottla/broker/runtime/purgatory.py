"""Fetches that wait for data. They wake when something can change their answer, or when their time is over."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from ottla.base.limits import UNWATCHED_AT_ONCE
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.wakes import Wakes


class Waiting(Protocol):
    """A fetch that was read once and has not enough bytes for an answer."""

    def read_again(self, changed: Iterable[Partition] | None, /) -> int:
        """Read these partitions again (None: all of them); how many bytes are still missing, 0 or less for none."""
        ...


class DelayedFetch:
    """One waiting fetch. It resolves `future` after it was read for the last time.

    A read_uncommitted fetch waits until enough bytes are appended to its partitions. A read_committed fetch cannot read
    what comes after an open transaction; so it wakes when the last stable offset of a partition moves. All changes of
    one turn of the loop wake a fetch once, and only the partitions that have changed are read again. When the fetch's
    time is over, all its partitions are read again, so that the answer is up to date.
    """

    __slots__ = (
        "_changed",
        "_fetch",
        "_future",
        "_is_over",
        "_missing_bytes",
        "_partitions",
        "_scheduled",
        "_stable",
        "_timeout",
        "_wakes",
    )

    def __init__(self, future: asyncio.Future[object], fetch: Waiting, wakes: Wakes, *, committed: bool) -> None:
        self._future = future
        self._fetch = fetch
        self._wakes = wakes
        self._partitions: list[Partition] = []
        #: None as long as the fetch is being read for the first time.
        self._missing_bytes: int | None = None
        #: In the order of the changes.
        self._changed: dict[Partition, None] = {}
        #: The last stable offsets that have been read, for a read_committed fetch.
        self._stable: dict[Partition, int] | None = {} if committed else None
        self._scheduled = False
        self._is_over = False
        self._timeout: asyncio.TimerHandle | None = None
        future.add_done_callback(self._forget)

    def watch(self, partition: Partition) -> None:
        """From now on its changes count. It is read in the same turn of the loop."""
        self._partitions.append(partition)
        if self._stable is not None:
            self._stable[partition] = partition.log.last_stable_offset
        partition.watch(self)

    def wait(self, missing_bytes: int, max_wait_ms: int) -> None:
        """All partitions were read, and so much is missing: wait for it, and no longer than `max_wait_ms`."""
        self._missing_bytes = 0 if self._changed else missing_bytes
        self._timeout = self._future.get_loop().call_later(max_wait_ms / 1000, self._expired)
        self._wake()

    def appended(self, partition: Partition, size_bytes: int) -> None:
        """For the partition: a batch was appended, or a transaction has ended."""
        if self._stable is not None:
            stable = partition.log.last_stable_offset
            if stable == self._stable[partition]:
                return
            # A marker may make any number of bytes readable. Only reading shows how many.
            self._stable[partition] = stable
            self._change(partition, None)
        else:
            self._change(partition, size_bytes)

    def gone(self, partition: Partition) -> None:
        """For the partition: it was deleted, and the client must be told."""
        self._change(partition, None)

    def _change(self, partition: Partition, size_bytes: int | None) -> None:
        """So many bytes came; None if only reading shows how many."""
        self._changed[partition] = None
        if self._missing_bytes is not None:
            self._missing_bytes = 0 if size_bytes is None else self._missing_bytes - size_bytes
            self._wake()

    def _wake(self) -> None:
        if self._missing_bytes is not None and self._missing_bytes <= 0 and not self._scheduled:
            self._scheduled = True
            self._wakes.add(self._try)

    def _expired(self) -> None:
        self._is_over = True
        if not self._scheduled:
            self._scheduled = True
            self._wakes.add(self._try)

    def _try(self) -> None:
        self._scheduled, last = False, self._is_over
        if self._future.done():
            return
        changed, self._changed = self._changed, {}
        try:
            self._missing_bytes = self._fetch.read_again(None if last else changed)
        except Exception as fault:  # noqa: BLE001 - whoever waits gets it
            self._future.set_exception(fault)
            return
        if last or self._missing_bytes <= 0:
            self._future.set_result(None)

    def _forget(self, future: asyncio.Future[object]) -> None:
        """Stop watching: the fetch is answered, or its client has gone."""
        if self._timeout is not None:
            self._timeout.cancel()
        self._unwatch_some()

    def _unwatch_some(self) -> None:
        """Of very many partitions some; the others follow. Many such fetches may wait for the same moment."""
        for partition in self._partitions[-UNWATCHED_AT_ONCE:]:
            partition.unwatch(self)
        del self._partitions[-UNWATCHED_AT_ONCE:]
        if self._partitions:
            self._wakes.add(self._unwatch_some)
