"""Reads a metadata log, and the snapshot before it: which records count, and who the quorum's voters are.

What stands between the beginning and the end of a transaction counts with its end, all of it or nothing (KIP-868).
"""

from collections.abc import Callable, Iterable
from itertools import chain

from ottla.base.errors import CorruptDataError, StorageError
from ottla.broker.metadata.features import check_known
from ottla.broker.metadata.names import METADATA_FOLDER
from ottla.broker.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RemoveTopicRecord,
    UnknownRecordError,
    decode_record,
)
from ottla.broker.metadata.snapshots import newest_snapshot, read_snapshot
from ottla.log.names import LOG, base_offset
from ottla.log.storage import Storage
from ottla.wire.batch import BatchHeader, check_integrity, iter_headers
from ottla.wire.quorum_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord, decode_control
from ottla.wire.records import Record, decode_batch


class Reading:
    """What was read so far."""

    def __init__(self, apply: Callable[[MetadataRecord], None]) -> None:
        """`apply` takes each record that counts, in order."""
        self._apply = apply
        self._waiting: list[MetadataRecord] | None = None
        #: The ids of topics that were deleted.
        self.deleted: set[bytes] = set()
        #: Who votes in the quorum; None where nothing says it.
        self.voters: tuple[int, ...] | None = None
        self.kraft_version = 0
        #: The newest epoch of the quorum, or -1.
        self.epoch = -1

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._waiting is not None

    def batch(self, header: BatchHeader, records: Iterable[Record]) -> None:
        """The next batch.

        StorageError when a record, or a feature's level, is of a newer version; CorruptDataError for a damaged one.
        """
        self.epoch = max(self.epoch, header.partition_leader_epoch)
        for record in records:
            if header.is_control:
                self._control(record)
            elif record.value is not None:
                try:
                    change = decode_record(record.value)
                except UnknownRecordError as fault:
                    raise StorageError(
                        f"the metadata log ({METADATA_FOLDER}) holds what this version of Ottla does not know "
                        f"({fault}): a newer version has written it, start that one"
                    ) from fault
                self._record(change)

    def _control(self, record: Record) -> None:
        match decode_control(record):
            case LeaderChangeMessage(voters=voters) | VotersRecord(voters=voters):
                self.voters = tuple(each.voter_id for each in voters)
            case KRaftVersionRecord(kraft_version=version):
                self.kraft_version = version

    def _record(self, record: MetadataRecord) -> None:
        match record:
            case BeginTransactionRecord():
                if self._waiting is not None:
                    raise CorruptDataError("a transaction of the metadata begins within another one")
                self._waiting = []
            case EndTransactionRecord() | AbortTransactionRecord():
                if self._waiting is None:
                    raise CorruptDataError("a transaction of the metadata ends that has not begun")
                waiting, self._waiting = self._waiting, None
                for each in waiting if isinstance(record, EndTransactionRecord) else ():
                    self._count(each)
            case _ if self._waiting is not None:
                self._waiting.append(record)
            case _:
                self._count(record)

    def _count(self, record: MetadataRecord) -> None:
        if isinstance(record, FeatureLevelRecord):
            check_known(record)
        elif isinstance(record, RemoveTopicRecord):
            self.deleted.add(record.topic_id)
        self._apply(record)


def read_newest_snapshot(files: Storage, reading: Reading) -> int:
    """Read the newest snapshot in the log's folder. Returns the offset at which the log goes on; 0 without one.

    StorageError when it is damaged.
    """
    snapshot = newest_snapshot(files.names())
    if snapshot is None:
        return 0
    try:
        for header, records in read_snapshot(files.read(snapshot.file_name) or b""):
            reading.batch(header, records)
    except CorruptDataError as fault:
        raise StorageError(
            f"{METADATA_FOLDER}/{snapshot.file_name} is damaged ({fault}): nothing was changed; put it back from a copy"
        ) from None
    reading.epoch = max(reading.epoch, snapshot.epoch)
    return snapshot.end_offset


def read_closed(files: Storage, reading: Reading) -> None:
    """Read a metadata log that nobody has opened: the newest snapshot, and whole batches behind it up to a torn end.

    StorageError when it cannot be read.
    """
    offset = read_newest_snapshot(files, reading)
    bases = sorted(base for base in (base_offset(name, LOG) for name in files.names()) if base is not None)
    contents = (files.read(f"{base:020d}{LOG}") or b"" for base in bases)
    try:
        for content, (position, header) in chain.from_iterable(
            ((content, found) for found in iter_headers(content)) for content in contents
        ):
            check_integrity(content, position, header)
            if header.base_offset >= offset:
                reading.batch(header, decode_batch(content[position : position + header.size_bytes]))
    except CorruptDataError:
        return  # the end that a crash has torn; `damage` has looked at the rest
