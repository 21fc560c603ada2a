"""Batches whose records have to be looked at one by one are looked at before they are appended, beside the loop.

That is so for a compacted topic, which wants a key in every record, and for a batch that is refused because of its
timestamps. A few compressed bytes may stand for millions of records.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from ottla.base.limits import MAX_INLINE_OPENED_BYTES, MAX_RECORD_ERRORS
from ottla.base.types import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.record_checks import Looked
from ottla.log.validation import look_at, needs_look
from ottla.wire.batch import HEADER_BYTES, Compression, compression_number, parse_header
from ottla.wire.batch_errors import CorruptBatchError
from ottla.wire.codec import Buffer


class Opening:
    """The batches of one request that are looked at in a thread. The log looks at short ones itself."""

    def __init__(self) -> None:
        #: By the identity of what came.
        self._wanted: dict[int, Callable[[int], Looked | None]] = {}
        self._looked: dict[int, Looked | None] = {}
        #: Refused records that may still be named, all batches of the request together.
        self.nameable = MAX_RECORD_ERRORS

    def add(self, records: Buffer, tp: TopicPartition, config: LogConfig, now_ms: int) -> None:
        """A batch for a topic with these settings."""
        if len(records) < HEADER_BYTES or _is_short(records):
            return
        try:
            header = parse_header(records)
        except CorruptBatchError:
            return  # the log refuses it
        if needs_look(header, config, now_ms):
            self._wanted[id(records)] = partial(look_at, records, config, tp, now_ms)

    def run(self, beside: Callable[[Callable[[], None]], "asyncio.Future[None]"]) -> "asyncio.Future[None] | None":
        """Look at them `beside` the loop; None when there are none."""
        if not self._wanted:
            return None
        return beside(self._work)

    def looked(self, records: Buffer | None) -> Looked | None:
        """What was found in this batch, or None. It is handed out once: it may be large."""
        return self._looked.pop(id(records), None)

    def _work(self) -> None:
        for key, look in self._wanted.items():
            found = self._looked[key] = look(self.nameable)
            if found is not None and found.refusal is not None:
                self.nameable -= len(found.refusal.record_errors)


def _is_short(records: Buffer) -> bool:
    return compression_number(records) == Compression.NONE and len(records) <= MAX_INLINE_OPENED_BYTES
