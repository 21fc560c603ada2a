"""A partition's log in memory, and the short ways the tests talk to it."""

import struct

from ottla.base.types import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.names import SNAPSHOT
from ottla.log.partition import PartitionLog
from ottla.log.record_checks import Looked
from ottla.log.results import Appended, Isolation, Read
from ottla.log.storage import Storage
from ottla.wire.batch import BatchHeader, iter_headers
from ottla.wire.crc import crc32c
from ottla.wire.errors import ErrorCode
from ottla.wire.markers import parse_end_txn_marker
from ottla.wire.special_timestamp import SpecialTimestamp
from tests.log.batches import NOW_MS, idempotent

TP = TopicPartition("orders", 0)
#: Every batch is indexed but the first of a segment; segments hold a few batches.
SMALL = LogConfig(segment_bytes=2_000, index_interval_bytes=0)


def open_log(storage: Storage | None = None, config: LogConfig | None = None, **how: int) -> PartitionLog:
    """A log at NOW_MS; `how` are `open`'s clean, recovery_point, log_start_offset."""
    return PartitionLog.open(
        TP,
        MemoryStorage() if storage is None else storage,
        config or LogConfig(),
        NOW_MS,
        clean=bool(how.get("clean", False)),
        recovery_point=how.get("recovery_point", 0),
        log_start_offset=how.get("log_start_offset"),
    )


def append(
    log: PartitionLog, records: bytes, *, now_ms: int = NOW_MS, guard: int = 0, looked: Looked | None = None
) -> Appended:
    """Append as a client."""
    return log.append(records, now_ms=now_ms, verification_guard=guard, looked=looked)


def seven_batches() -> tuple[MemoryStorage, PartitionLog]:
    """A log with seven batches of one producer, of one record each."""
    storage = MemoryStorage()
    log = open_log(storage)
    for sequence in range(7):
        append(log, idempotent(sequence))
    return storage, log


def append_in_transaction(
    log: PartitionLog, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0
) -> Appended:
    """Append a transactional batch the way a broker does: verified first."""
    guard = log.producers.begin_verification(producer_id, sequence, epoch, supports_epoch_bump=False, now_ms=NOW_MS)
    assert guard.error is ErrorCode.NONE, guard.message
    records = idempotent(sequence, count, producer_id=producer_id, epoch=epoch, transactional=True)
    return append(log, records, guard=guard.guard)


def end(
    log: PartitionLog,
    *,
    commit: bool,
    producer_id: int = 7,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> Appended:
    """Append a marker."""
    return log.append_control(
        producer_id=producer_id,
        producer_epoch=epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        now_ms=NOW_MS,
        transaction_version=transaction_version,
    )


def as_apache_kafka_writes(storage: MemoryStorage) -> None:
    """Leave in every producer snapshot only what Apache Kafka's have: one batch of each producer."""
    for name, file in storage.files.items():
        if name.endswith(SNAPSHOT):
            (count,) = struct.unpack_from(">i", file.content, 6)
            body = bytes(file.content[6 : 10 + count * 46])
            file.content[:] = struct.pack(">hI", 1, crc32c(body)) + body


def content(read: Read) -> bytes:
    """The bytes of a read."""
    return b"".join(piece.read() for piece in read.slices)


def headers(read: Read) -> list[BatchHeader]:
    """The headers of the whole batches of a read."""
    return [header for _, header in iter_headers(content(read))]


def latest_epoch(log: PartitionLog) -> int:
    """The leader epoch of the newest records, or -1."""
    latest = log.offset_for_timestamp(SpecialTimestamp.LATEST)
    assert latest is not None
    return latest.leader_epoch


def every_batch(log: PartitionLog, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> list[bytes]:
    """Every batch of the log, read from its start to where the isolation ends."""
    batches: list[bytes] = []
    offset = log.log_start_offset
    while True:
        data = content(log.read(offset, 1_000_000, isolation=isolation))
        if not data:
            return batches
        for position, header in iter_headers(data):
            batches.append(data[position : position + header.size_bytes])
            offset = header.last_offset + 1


def committed_offsets(log: PartitionLog) -> list[int]:
    """What a READ_COMMITTED consumer sees: it drops aborted batches by the list and the markers, as clients do."""
    seen: list[int] = []
    offset = log.log_start_offset
    while True:
        read = log.read(offset, 300, isolation=Isolation.READ_COMMITTED)
        data = content(read)
        if not data:
            return seen
        waiting = sorted(read.aborted or (), key=lambda each: each.first_offset)
        aborting: set[int] = set()
        for position, header in iter_headers(data):
            offset = header.last_offset + 1
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborting.add(waiting.pop(0).producer_id)
            if header.is_control:
                if header.record_count and not parse_end_txn_marker(data[position : position + header.size_bytes])[0]:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                seen += range(header.base_offset, header.last_offset + 1)


def retain(log: PartitionLog, now_ms: int) -> int:
    """What a broker does at each look at retention, in one thread; how many segments are deleted."""
    log.retire(now_ms)
    return log.delete_retired()
