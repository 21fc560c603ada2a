"""Fetch responses packed by hand: a few header bytes around records that are never looked at (idea 6)."""

import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.base.errors import StorageError
from ottla.broker.outbox import Piece, sendable
from ottla.log.results import AbortedTransaction, Read
from ottla.log.storage import Slice
from ottla.wire.codec import Buffer
from ottla.wire.errors import ErrorCode

_FLEXIBLE_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13
_SIZE = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_HEAD = struct.Struct(">i")
_BODY = struct.Struct(">ihi")
#: What comes before the topics, up to version 6: throttle_time_ms only.
_OLD_BODY = struct.Struct(">i")
#: index, error, high watermark, last stable offset, log start offset (from version 5).
_PARTITION = struct.Struct(">ihqqq")
_PARTITION_V4 = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
ABORTED_BYTES: Final = _ABORTED.size
#: Aborted transactions that are written in one step: a tenth of a millisecond.
_ABORTED_AT_ONCE: Final = 500
_REPLICA = struct.Struct(">i")
_NO_REPLICA: Final = _REPLICA.pack(-1)
#: A smaller piece of a file is read and sent together with the bytes around it: one system call and one packet less.
_SENDFILE_FROM_BYTES: Final = 65_536
#: One answer has so much of files in memory, for its client need not read it. Beyond it smaller pieces are sent as
#: files, too, but the smallest: each costs two system calls, and of 8 KiB a connection sends 128 in a turn.
_READ_BYTES: Final = 1_048_576
_SENDFILE_THEN_FROM_BYTES: Final = 8_192


class PartitionResult(NamedTuple):
    """One partition of the answer."""

    topic: str
    topic_id: bytes
    partition: int
    read: Read
    #: (epoch, end offset) where the client's log and ours part ways (KIP-595), or None.
    diverging: tuple[int, int] | None = None
    #: (leader id, leader epoch) for a client whose epoch is wrong, or None.
    leader: tuple[int, int] | None = None


#: Writes down that a partition cannot be read, and says what its answer is.
Report: TypeAlias = Callable[[PartitionResult, StorageError], ErrorCode]


def _storage_error(result: PartitionResult, fault: StorageError) -> ErrorCode:
    return ErrorCode.KAFKA_STORAGE_ERROR


class _Made:
    """The pieces of an answer, what they take in memory, and how much of files they may."""

    __slots__ = ("_left_bytes", "_take", "_untold_bytes", "pieces", "size_bytes")

    def __init__(self, take: Callable[[int], object] | None) -> None:
        #: Hears of all bytes that are made.
        self._take = take
        self._untold_bytes = 0
        self._left_bytes = _READ_BYTES
        self.pieces: list[Piece] = []
        self.size_bytes = 0

    def sendable(self, piece: Slice) -> Piece:
        """The piece, or its bytes where it is small."""
        length_bytes = piece.length_bytes
        is_short = self._left_bytes < length_bytes
        found = sendable(piece, _SENDFILE_THEN_FROM_BYTES if is_short else _SENDFILE_FROM_BYTES)
        if found is not piece:
            self._left_bytes -= length_bytes
            self._untold_bytes += length_bytes
        return found

    def add(self, head: bytearray, records: Sequence[Piece] = (), records_bytes: int = 0) -> None:
        """More of the answer: so many bytes of records behind `head`."""
        self.pieces.append(bytes(head))
        self.pieces += records
        self.size_bytes += len(head) + records_bytes
        if self._take is not None:
            self._take(len(head) + self._untold_bytes)
            self._untold_bytes = 0


def encode_fetch(
    version: int,
    correlation_id: int,
    error: ErrorCode,
    session_id: int,
    results: Sequence[PartitionResult],
    throttle_ms: int = 0,
    report: Report = _storage_error,
) -> list[Piece]:
    """A whole response frame in pieces: header bytes and, between them, slices of files.

    Small slices are read here, as far as there is room; `report` hears of one that the disk does not give.
    """
    pieces: list[Piece] = []
    for _ in encode_fetch_steps(version, correlation_id, error, session_id, results, pieces, throttle_ms, report):
        pass
    return pieces


def encode_fetch_steps(
    version: int,
    correlation_id: int,
    error: ErrorCode,
    session_id: int,
    results: Sequence[PartitionResult],
    pieces: list[Piece],
    throttle_ms: int = 0,
    report: Report = _storage_error,
    take: Callable[[int], object] | None = None,
) -> Iterator[None]:
    """The same in steps, at least one for each partition; all pieces are there at the end.

    `take` hears of the bytes in memory while they are made, and may raise.
    """
    flexible = version >= _FLEXIBLE_FROM
    head = bytearray(_HEAD.pack(correlation_id))
    if flexible:
        head.append(0)
    head += _BODY.pack(throttle_ms, error, session_id) if version >= 7 else _OLD_BODY.pack(throttle_ms)
    topics = _by_topic(results)
    _count(head, len(topics), flexible)
    made = _Made(take)
    for group in topics:
        if version >= _TOPIC_IDS_FROM:
            head += group[0].topic_id
        else:
            _name(head, group[0].topic, flexible)
        _count(head, len(group), flexible)
        for result in group:
            aborted = result.read.aborted
            if aborted is not None and len(aborted) > _ABORTED_AT_ONCE:
                told = yield from _aborted_steps(aborted, flexible)
            else:
                told = _aborted(aborted, flexible)
            head = _partition(made, head, version, result, told, report)
            yield
        if flexible:
            head.append(0)
    if flexible:
        head.append(0)
    made.add(head)
    pieces.append(_SIZE.pack(made.size_bytes))
    pieces.extend(made.pieces)


def response_bytes(encoded: Sequence[Piece], version: int) -> int:
    """How large Kafka says that an answer is (`FetchResponse.sizeOf`): its body and four bytes.

    The first piece says how many bytes follow: there may be very many pieces.
    """
    first = encoded[0]
    size: int = 0 if isinstance(first, Slice) else _SIZE.unpack(first)[0]
    return size - (1 if version >= _FLEXIBLE_FROM else 0)


def _partition(
    made: _Made, head: bytearray, version: int, result: PartitionResult, aborted: Buffer, report: Report
) -> bytearray:
    """Write one partition; the records go into the answer as they are. Returns the buffer to go on with."""
    read, flexible = result.read, version >= _FLEXIBLE_FROM
    try:
        records = [made.sendable(piece) for piece in read.slices]
    except StorageError as fault:
        read, records = Read(report(result, fault), (), -1, -1, -1), []
        aborted = _aborted(None, flexible)
    if version >= 5:
        head += _PARTITION.pack(
            result.partition, read.error, read.high_watermark, read.last_stable_offset, read.log_start_offset
        )
    else:
        head += _PARTITION_V4.pack(result.partition, read.error, read.high_watermark, read.last_stable_offset)
    head += aborted
    if version >= 11:
        head += _NO_REPLICA
    size = read.size_bytes
    if flexible:
        _uvarint(head, size + 1)
    else:
        head += _SIZE.pack(size)
    if size:
        made.add(head, records, size)
        head = bytearray()
    if flexible:
        _tags(head, result)
    return head


def _aborted(aborted: Sequence[AbortedTransaction] | None, flexible: bool) -> Buffer:
    """The list of a partition's aborted transactions."""
    if aborted is None:
        return b"\0" if flexible else b"\xff\xff\xff\xff"
    told = bytearray()
    _count(told, len(aborted), flexible)
    for each in aborted:
        told += _ABORTED.pack(*each)
        if flexible:
            told.append(0)
    return told


def _aborted_steps(aborted: Sequence[AbortedTransaction], flexible: bool) -> Generator[None, None, Buffer]:
    """The same of very many, in steps."""
    told = bytearray()
    _count(told, len(aborted), flexible)
    for at in range(0, len(aborted), _ABORTED_AT_ONCE):
        some = bytearray()
        for each in aborted[at : at + _ABORTED_AT_ONCE]:
            some += _ABORTED.pack(*each)
            if flexible:
                some.append(0)
        told += some
        yield
    return told


def _tags(head: bytearray, result: PartitionResult) -> None:
    """Tag 0: diverging epoch; tag 1: current leader. Each struct ends with its own (empty) tags."""
    tagged = []
    if result.diverging is not None:
        tagged.append(b"\x00\x0d" + struct.pack(">iq", *result.diverging) + b"\0")
    if result.leader is not None:
        tagged.append(b"\x01\x09" + struct.pack(">ii", *result.leader) + b"\0")
    head.append(len(tagged))
    for each in tagged:
        head += each


def _by_topic(results: Sequence[PartitionResult]) -> list[list[PartitionResult]]:
    """Results of one topic that stand next to each other form a group. The order is kept."""
    groups: list[list[PartitionResult]] = []
    for result in results:
        if groups and groups[-1][0].topic_id == result.topic_id and groups[-1][0].topic == result.topic:
            groups[-1].append(result)
        else:
            groups.append([result])
    return groups


def _name(head: bytearray, name: str, flexible: bool) -> None:
    data = name.encode()
    if flexible:
        _uvarint(head, len(data) + 1)
    else:
        head += _INT16.pack(len(data))
    head += data


def _count(head: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        _uvarint(head, count + 1)
    else:
        head += _SIZE.pack(count)


def _uvarint(head: bytearray, value: int) -> None:
    while value >= 0x80:
        head.append((value & 0x7F) | 0x80)
        value >>= 7
    head.append(value)
