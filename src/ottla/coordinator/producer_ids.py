"""Producer ids: given out in blocks of 1,000; a block is durable before its first id is used (P2).

Theory of operation. `reserve` decides the next block; the runtime appends the record to the metadata log and gives it
to `apply`. Only then can `next_producer_id` give out its ids, from memory. A crash forgets what was left of a block. So
no id is given out twice, and there are gaps between ids, as in Apache Kafka (`ProducerIdControlManager`,
`RPCProducerIdManager`).
"""

from __future__ import annotations

from typing import Final

from ottla.base.require import require
from ottla.coordinator.decision import NOTHING, Decision, LogRecord
from ottla.wire.errors import ErrorCode
from ottla.wire.producer_ids_record import ProducerIdsRecord, decode_producer_ids, encode_producer_ids

#: `ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`: how many ids one durable write gives.
PRODUCER_ID_BLOCK_SIZE: Final = 1_000

#: With this many ids left the next block is reserved, so that no request waits for it (Kafka: after 90 % of a block).
PREFETCH_BELOW: Final = PRODUCER_ID_BLOCK_SIZE // 10

#: How many blocks are left out after a loss of records that gave ids out: ids may be in use that have written nothing.
_BLOCKS_IN_DOUBT: Final = 10

_MAX_PRODUCER_ID: Final = 2**63 - 1


class ProducerIds:
    """The producer ids of one broker, and the first id that the cluster has not given to a broker."""

    def __init__(self, broker_id: int, broker_epoch: int = -1) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        #: Durable: every id below this has been given to a broker.
        self._next_block_start = 0
        #: Not durable: the blocks that this broker may use; the first one is in use.
        self._blocks: list[range] = []
        self._reserving: range | None = None

    @property
    def left(self) -> int:
        """How many ids `next_producer_id` can give out now."""
        return sum(map(len, self._blocks))

    @property
    def wants_block(self) -> bool:
        """Whether the runtime should call `reserve` now."""
        return self._reserving is None and self.left <= PREFETCH_BELOW

    def reserve(self) -> Decision:
        """Decide the next block; nothing while an earlier reservation is not durable yet."""
        if self._reserving is not None:
            return NOTHING
        start = self._next_block_start
        require(start <= _MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE, "producer ids are used up")
        self._reserving = range(start, start + PRODUCER_ID_BLOCK_SIZE)
        record = ProducerIdsRecord(self._broker_id, self._broker_epoch, self._reserving.stop)
        return Decision(records=(LogRecord(b"", encode_producer_ids(record)),))

    def apply(self, record: LogRecord, now_ms: int) -> None:
        """Take in a durable record, in operation or at recovery. A block from before a restart is not used again."""
        value = record.value
        require(value is not None, "a ProducerIdsRecord has no tombstone")
        assert value is not None
        next_start = decode_producer_ids(value).next_producer_id
        require(next_start > self._next_block_start, f"producer ids go back: {next_start} < {self._next_block_start}")
        if self._reserving is not None and self._reserving.stop == next_start:
            self._blocks.append(self._reserving)
            self._reserving = None
        self._next_block_start = next_start

    def skip(self, seen_id: int) -> None:
        """Records of blocks are lost, and `seen_id` is in use: the next block begins well behind it.

        An id far beyond all that were given out is some client's invention, and does not count.
        """
        start = (seen_id // PRODUCER_ID_BLOCK_SIZE + 1 + _BLOCKS_IN_DOUBT) * PRODUCER_ID_BLOCK_SIZE
        if self._next_block_start < start <= _MAX_PRODUCER_ID // 2:
            self._next_block_start = start

    def append_failed(self, decision: Decision, error: ErrorCode) -> Decision:
        """The block did not become durable: it may be reserved again."""
        self._reserving = None
        return NOTHING

    def was_given(self, producer_id: int) -> bool:
        """Whether somebody may have this id: it will not be given out by this broker any more."""
        return producer_id < self._next_block_start and not any(producer_id in block for block in self._blocks)

    def next_producer_id(self) -> int | None:
        """A producer id that was never given out before, or None until a reserved block is durable.

        A request that gets None is answered COORDINATOR_LOAD_IN_PROGRESS, which every client retries.
        """
        while self._blocks:
            block = self._blocks[0]
            if block:
                self._blocks[0] = block[1:]
                return block[0]
            self._blocks.pop(0)
        return None
