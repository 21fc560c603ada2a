"""A partition's records from its start: how coordinators and the metadata image come back after a restart."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.partition import PartitionLog
from ottla.log.results import Isolation
from ottla.wire.batch import BatchHeader, check_integrity, is_emptied, iter_headers
from ottla.wire.errors import ErrorCode
from ottla.wire.markers import parse_end_txn_marker
from ottla.wire.records import Record, decode_batch

#: Bytes read at once (`offsets.load.buffer.size`).
_READ_BYTES: Final = 5_242_880


class ReplayedBatch(NamedTuple):
    """One batch, decoded."""

    records: tuple[Record, ...]
    next_offset: int
    #: Set for a transactional batch and for a marker.
    producer_id: int | None = None
    #: The outcome when the batch is a marker, and who wrote it; its records are not given.
    commit: bool | None = None


def replay(log: PartitionLog, offset: int | None = None) -> Iterator[ReplayedBatch]:
    """Every batch from `offset` (default: the log's start) to the end as it is when the iterator gets there.

    StorageError when records are missing that were on the device, or a byte has changed: what they said must not be
    passed over, nor believed. What a loss of power has taken was never there.
    """
    for header, batch in batches(log, offset):
        end = header.last_offset + 1
        if header.is_control:
            commit = None if is_emptied(header) else parse_end_txn_marker(batch)[0]
            yield ReplayedBatch((), end, header.producer_id, commit)
        else:
            transactional = header.producer_id if header.is_transactional else None
            yield ReplayedBatch(tuple(decode_batch(batch)), end, transactional)


def batches(log: PartitionLog, offset: int | None = None) -> Iterator[tuple[BatchHeader, memoryview]]:
    """As `replay`, without opening a batch. Every one is whole."""
    log.synced.sync_due()  # a read ends where that has to be done first
    position = log.log_start_offset if offset is None else offset
    while position < log.end_offset:
        try:
            read = log.read(position, _READ_BYTES, isolation=Isolation.READ_UNCOMMITTED, min_one_batch=True)
        except CorruptDataError as fault:
            raise StorageError(f"{log.tp}: the log is damaged at offset {position}: {fault}") from None
        if read.error is not ErrorCode.NONE:
            raise StorageError(f"{log.tp}: the log is damaged at offset {position}")
        chunk = b"".join(piece.read() for piece in read.slices)
        if not chunk:
            return  # only a newer segment's name was left; flushed records that are missing are an error of the read
        before = position
        for at, header in _headers(log, chunk, position):
            end = header.last_offset + 1
            if at > 0 and header.base_offset < position:
                # no CRC covers a base offset; those before this one would be passed over
                raise StorageError(
                    f"{log.tp}: the log is damaged at offset {before}, or at one behind it: offsets go back"
                )
            position = end
            try:
                check_integrity(chunk, at, header)
            except CorruptDataError as fault:
                raise StorageError(f"{log.tp}: the log is damaged at offset {header.base_offset}: {fault}") from None
            yield header, memoryview(chunk)[at : at + header.size_bytes]
        if position == before:
            raise StorageError(f"{log.tp}: the log is damaged at offset {position}")


def _headers(log: PartitionLog, chunk: bytes, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    try:
        yield from iter_headers(chunk)
    except CorruptDataError as fault:
        raise StorageError(f"{log.tp}: the log is damaged behind offset {offset}: {fault}") from None
