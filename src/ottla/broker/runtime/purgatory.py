"""Fetches that wait for data: woken by appends to any of their partitions, or by their time."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ottla.broker.runtime.partitions import Partition


class Retry(Protocol):
    """Reads again; None to go on waiting (never when `last`)."""

    def __call__(self, *, last: bool) -> object | None: ...


class DelayedFetch:
    """One waiting fetch; resolves `future` with what `retry` returns, exactly once.

    Appends that come in one turn of the loop wake it once, after the last of them.
    """

    __slots__ = ("_future", "_missing_bytes", "_partitions", "_retry", "_scheduled", "_timeout")

    def __init__(
        self,
        future: asyncio.Future[object],
        partitions: Sequence[Partition],
        retry: Retry,
        missing_bytes: int,
        max_wait_ms: int,
    ) -> None:
        self._future = future
        self._partitions = partitions
        self._retry = retry
        self._missing_bytes = missing_bytes
        self._scheduled = False
        for partition in partitions:
            partition.watch(self._appended)
        self._timeout = asyncio.get_running_loop().call_later(max_wait_ms / 1000, self._expired)
        future.add_done_callback(self._forget)

    def _appended(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0 and not self._scheduled:
            self._scheduled = True
            self._future.get_loop().call_soon(self._try)

    def _try(self) -> None:
        self._scheduled = False
        self._read(last=False)

    def _expired(self) -> None:
        self._read(last=True)

    def _read(self, *, last: bool) -> None:
        if self._future.done():
            return
        try:
            result = self._retry(last=last)
        except Exception as fault:  # noqa: BLE001 - whoever waits gets it
            self._future.set_exception(fault)
            return
        if result is not None:
            self._future.set_result(result)

    def _forget(self, future: asyncio.Future[object]) -> None:
        """Answered, or the client has gone."""
        self._timeout.cancel()
        for partition in self._partitions:
            partition.unwatch(self._appended)
