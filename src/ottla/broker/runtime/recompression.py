"""`compression.type` of a topic: clients' batches are compressed anew before they are appended, beside the loop."""

import asyncio
from collections.abc import Callable

from ottla.base.errors import kept
from ottla.base.limits import MAX_INLINE_COMPRESSION, MAX_RECOMPRESSED_BYTES
from ottla.log.config import LogConfig
from ottla.wire.batch import HEADER_BYTES, compression_number, parse_header
from ottla.wire.batch_errors import CorruptBatchError
from ottla.wire.codec import Buffer
from ottla.wire.compression import Compression
from ottla.wire.recompression import recompressed


class Recompression:
    """The batches of one request whose topics want another compression than they have."""

    def __init__(self) -> None:
        #: By the identity of what came: what came, and the topic's settings.
        self._wanted: dict[int, tuple[Buffer, LogConfig]] = {}
        self._changed: dict[int, Buffer] = {}
        #: Why a batch cannot be compressed anew, by the same.
        self.faults: dict[int, CorruptBatchError] = {}

    def add(self, records: Buffer, config: LogConfig) -> None:
        """A batch for a topic. One that the log refuses anyway is left to it."""
        if config.compression is None or len(records) < HEADER_BYTES:
            return
        if compression_number(records) != config.compression and _is_acceptable(records, config):
            self._wanted[id(records)] = (records, config)

    def run(self, beside: Callable[[Callable[[], None]], "asyncio.Future[None]"]) -> "asyncio.Future[None] | None":
        """Do it: at once (None), or `beside` the loop when it may take long."""
        if not self._wanted:
            return None
        if all(_is_short(records) for records, _ in self._wanted.values()) and len(self._wanted) == 1:
            self._work()
            return None
        return beside(self._work)

    def changed(self, records: Buffer | None) -> Buffer | None:
        """What to append instead of `records`."""
        return self._changed.get(id(records), records)

    def _work(self) -> None:
        for key, (records, config) in self._wanted.items():
            assert config.compression is not None
            try:
                self._changed[key] = recompressed(
                    records, config.compression, config.compression_level, MAX_RECOMPRESSED_BYTES
                )
            except CorruptBatchError as fault:
                self.faults[key] = kept(fault)


def _is_acceptable(records: Buffer, config: LogConfig) -> bool:
    try:
        header = parse_header(records)
    except CorruptBatchError:
        return False
    return header.size_bytes == len(records) <= config.max_message_bytes and not header.is_control


def _is_short(records: Buffer) -> bool:
    return compression_number(records) == Compression.NONE and len(records) <= MAX_INLINE_COMPRESSION
