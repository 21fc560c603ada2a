"""Producer snapshots (.snapshot): the producer state at the offset in the file's name, in Kafka's version 1.

    version i16 = 1, CRC-32C u32 of what follows, count i32, then per producer: id i64, epoch i16, last sequence i32,
    last offset i64, offset delta i32, timestamp i64, coordinator epoch i32, first offset of the open transaction i64

Kafka's snapshot holds only the last batch of each producer. Any of the last five may be sent again after a restart, and
the other four may be deleted by then, or gone with a damaged file. So ours go on with them, oldest first. Kafka passes
over what comes behind its entries, where its CRC covers it (`ProducerStateManager.readSnapshot`):

    version i16 = 1, count i32, then per batch: producer id i64, last sequence i32, last offset i64, offset delta i32,
    timestamp i64

Where Kafka has written the snapshot, recovery looks for the four in the log (`history.py`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from struct import Struct, error
from typing import Final

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.names import SNAPSHOT, base_offset, file_name
from ottla.log.producers import BatchMetadata, OngoingTransaction, ProducerEntry, ProducerState
from ottla.log.storage import File, Storage, sync_whole
from ottla.wire.crc import crc32c

_HEADER: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_VERSION: Final = 1
_EARLIER_HEADER: Final = Struct(">hi")
_EARLIER: Final = Struct(">qiqiq")
_EARLIER_VERSION: Final = 1
#: A snapshot of as many producers is written where it is taken: some 0.3 ms. Of more, as many are packed in a step.
FEW_PRODUCERS: Final = 500
#: So many rolls of a log have their snapshots with the next flush: each holds a reference to every producer.
_MOST_OWED: Final = 4
#: How many snapshots are kept that a flush wrote, in the middle of a segment: the newest, and the one before it.
#: Recovery needs the older one until the broker has written its new recovery point.
_FLUSH_SNAPSHOTS: Final = 2


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file for these producers."""
    return SnapshotDraft(-1, tuple(entries)).content()


class SnapshotDraft:
    """A snapshot in the making, of entries that do not change any more."""

    def __init__(self, offset: int, entries: Sequence[ProducerEntry]) -> None:
        self.offset = offset
        #: Whether its file is there.
        self.is_written = False
        self._entries = entries
        self._at = 0
        #: A piece of each step: one piece of all is put together at the end, and nobody else runs meanwhile.
        self._packed: list[bytes] = []
        self._earlier: list[bytes] = []

    def steps(self) -> Iterator[None]:
        """Pack what is not packed yet, some producers in a step."""
        while self._at < len(self._entries):
            some = self._entries[self._at : self._at + FEW_PRODUCERS]
            self._packed.append(b"".join(map(_pack, some)))
            # A coordinator's batches have no sequences (-1), and nobody sends them again.
            self._earlier.append(
                b"".join(
                    _EARLIER.pack(
                        entry.producer_id,
                        batch.last_sequence,
                        batch.last_offset,
                        batch.last_offset - batch.first_offset,
                        batch.timestamp_ms,
                    )
                    for entry in some
                    for batch in islice(entry.batches, max(len(entry.batches) - 1, 0))
                    if batch.last_sequence >= 0
                )
            )
            self._at += FEW_PRODUCERS
            yield

    def content(self) -> bytes:
        """The file."""
        for _ in self.steps():
            pass
        earlier = sum(map(len, self._earlier)) // _EARLIER.size
        tail = _EARLIER_HEADER.pack(_EARLIER_VERSION, earlier) if self._entries else b""
        pieces = (_COUNT.pack(len(self._entries)), *self._packed, tail, *self._earlier)
        crc = 0
        for piece in pieces:
            crc = crc32c(piece, crc)
        return b"".join((_HEADER.pack(_VERSION, crc), *pieces))


def decode_snapshot(content: bytes, end_offset: int) -> ProducerState:
    """The state at `end_offset`; CorruptDataError when the file is not a whole snapshot."""
    body, end = _checked(content)
    state = ProducerState(end_offset)
    entries = [_unpack(fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size : end])]
    state.producers = {entry.producer_id: entry for entry in entries}
    # The live state is in ascending order too.
    for first_offset, producer_id in sorted(
        (entry.txn_first_offset, entry.producer_id) for entry in entries if entry.txn_first_offset >= 0
    ):
        state.ongoing[first_offset] = OngoingTransaction(producer_id, first_offset)
    state.history_is_known = _add_earlier(state, body[end:])
    return state


def _checked(content: bytes) -> tuple[bytes, int]:
    """What its CRC covers, and where the producers in that end; CorruptDataError when the file is not whole."""
    try:
        version, crc = _HEADER.unpack_from(content)
        body = content[_HEADER.size :]
        (count,) = _COUNT.unpack_from(body)
    except error:
        raise CorruptDataError("producer snapshot is cut short") from None
    if version != _VERSION:
        raise CorruptDataError(f"producer snapshot has version {version}, not {_VERSION}")
    end = _COUNT.size + count * _ENTRY.size
    if crc32c(body) != crc or count < 0 or len(body) < end:
        raise CorruptDataError("producer snapshot is corrupt: its CRC or its length is wrong")
    return body, end


def _add_earlier(state: ProducerState, tail: bytes) -> bool:
    """Add the batches before each producer's last one; False when the snapshot does not say which they were."""
    if not tail:
        return False  # Kafka's
    try:
        version, count = _EARLIER_HEADER.unpack_from(tail)
    except error:
        raise CorruptDataError("producer snapshot is cut short behind its producers") from None
    if version != _EARLIER_VERSION:
        return False
    if len(tail) != _EARLIER_HEADER.size + count * _EARLIER.size:
        raise CorruptDataError("producer snapshot is corrupt: it has not as many earlier batches as it says")
    known: dict[int, list[BatchMetadata]] = {}
    for producer_id, *fields in _EARLIER.iter_unpack(tail[_EARLIER_HEADER.size :]):
        known.setdefault(producer_id, []).append(_batch(*fields))
    for producer_id, batches in known.items():
        entry = state.producers.get(producer_id)
        if entry is None:
            raise CorruptDataError(f"producer snapshot is corrupt: it has batches of producer {producer_id} only")
        entry.batches.extendleft(reversed(batches))
    return True


class Snapshots:
    """The snapshot files of one partition."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        #: Of so many producers one is written at once.
        self.few_producers = FEW_PRODUCERS
        #: Of the last one that was written, or is owed.
        self._begun_offset = -1
        #: By offset, ascending: those of rolls, and of the last flush, that are not written. They stay here while a
        #: flush has them in hand, which may be given up. The loop adds to it; who writes one takes that out, perhaps in
        #: another thread.
        self._owed: dict[int, SnapshotDraft] = {}
        #: Of the one that only a flush has taken: no segment begins there, so the next one is as good.
        self._midway_offset = -1
        #: Names of snapshots that were damaged, or of another offset.
        self.damaged: list[str] = []

    def offsets(self) -> list[int]:
        """The offsets of which there are snapshots, ascending."""
        found = (base_offset(name, SNAPSHOT) for name in self._storage.names())
        return sorted(offset for offset in found if offset is not None)

    @property
    def are_owed(self) -> bool:
        """Whether there are snapshots that wait for the next flush, or that one has in hand."""
        return bool(self._owed)

    def roll(self, state: ProducerState) -> None:
        """Take a snapshot at the state's end offset, where a segment begins, unless the last one was taken there.

        One of many producers is written with the next flush. Nobody needs it before: a start after a kill makes it
        again from an older one, and retention waits for it. Of many rolls only the first ones and the last one have
        theirs then: retention takes some segments together.
        """
        self._begin(state)
        self._midway_offset = -1
        for offset in list(self._owed)[_MOST_OWED - 1 : -1]:
            self._owed.pop(offset, None)

    def planned(self, state: ProducerState, segment_bases: Collection[int]) -> "PlannedSnapshots":
        """The same for a flush, with what is owed; one of few producers is written now."""
        if self._begin(state):
            self._midway_offset = state.end_offset
        return PlannedSnapshots(self, list(self._owed.values()), state.end_offset, segment_bases)

    def _begin(self, state: ProducerState) -> bool:
        """Write one of few producers, owe one of many; False if the last one was taken here."""
        if state.end_offset == self._begun_offset:
            return False
        if len(state.producers) <= self.few_producers:
            self.put(SnapshotDraft(state.end_offset, tuple(state.producers.values())))
        else:
            self._owed[state.end_offset] = SnapshotDraft(state.end_offset, state.freeze())
        self._owed.pop(self._midway_offset, None)
        self._begun_offset = state.end_offset
        return True

    def put(self, draft: SnapshotDraft) -> None:
        """Write it. StorageError."""
        self._storage.write(file_name(draft.offset, SNAPSHOT), draft.content(), sync=False)

    def pay(self, draft: SnapshotDraft) -> None:
        """Write it, unless another flush has; nobody owes it then. StorageError."""
        if not draft.is_written:
            self.put(draft)
            draft.is_written = True
        self._owed.pop(draft.offset, None)

    def ensure(self, state: ProducerState) -> None:
        """Take one at the state's end offset if there is none, and have it on the device.

        Recovery may have removed it. Apache Kafka, after a stop in order, believes that a log without a snapshot has no
        producers, and forgets an open transaction.
        """
        if self._begun_offset == state.end_offset and not self._owed:
            return  # a flush has it, and nobody removes the newest one
        if state.end_offset > 0 and file_name(state.end_offset, SNAPSHOT) not in self._storage.names():
            self._storage.write(file_name(state.end_offset, SNAPSHOT), encode_snapshot(state.producers.values()))

    def keep(self, state: ProducerState) -> None:
        """The same, if there are producers at all."""
        if state.producers:
            self.ensure(state)

    def load_newest(
        self, low_offset: int, high_offset: int, fits: Callable[[ProducerState], bool]
    ) -> ProducerState | None:
        """The newest readable snapshot in the range, both ends included, that `fits` the log. Newer and damaged ones
        are removed: the device has to know, or a loss of power would bring back what other records contradict by then.
        """
        offsets = self.offsets()
        try:
            return self._load_newest(offsets, low_offset, high_offset, fits)
        finally:
            if self.offsets() != offsets:
                self._storage.sync_names()

    def _load_newest(
        self, offsets: list[int], low_offset: int, high_offset: int, fits: Callable[[ProducerState], bool]
    ) -> ProducerState | None:
        for offset in reversed(offsets):
            name = file_name(offset, SNAPSHOT)
            content = self._storage.read(name) if low_offset <= offset <= high_offset else None
            if content is not None:
                # If the power failed before it was synced: an older snapshot and more of the log say the same.
                with suppress(CorruptDataError):
                    state = decode_snapshot(content, offset)
                    if fits(state):
                        return state
                self.damaged.append(name)
            self._storage.delete(name)
        return None

    def put_at(self, offset: int, state: ProducerState) -> None:
        """Take one where a segment begins, if there is none: it was lost with the power, or did not fit on the disk.

        Where the disk refuses, the segments before this one stay for the present.
        """
        name = file_name(offset, SNAPSHOT)
        with suppress(StorageError):
            if name not in self._storage.names():
                self._storage.write(name, encode_snapshot(state.producers.values()), sync=False)

    def deletable(self, bases: Sequence[int], count: int) -> int:
        """How many of the first segments may be deleted, `count` at most, so that no producer is forgotten.

        The log begins with the next segment then, so there must be a whole snapshot where that begins.
        """
        return next((number for number in range(count, 0, -1) if self._has_whole(bases[number])), 0)

    def _has_whole(self, offset: int) -> bool:
        """A loss of power may have torn it: nobody reads it while there are newer ones."""
        with suppress(CorruptDataError, StorageError):
            content = self._storage.read(file_name(offset, SNAPSHOT))
            return content is not None and bool(_checked(content))
        return False

    def begin_at(self, offset: int) -> None:
        """The log will begin here: have that snapshot on the device.

        Segments are deleted after this, and snapshots before it (`delete_before`) after them: wherever a kill or a loss
        of power stops that, the first segment that is left has its snapshot.
        """
        name = file_name(offset, SNAPSHOT)
        if name in self._storage.names():
            sync_whole(self._storage, [self._storage.open(name)])
            self._storage.sync_names()

    def delete_before(self, offset: int) -> None:
        """Remove the snapshots of deleted segments. One that cannot be removed stays."""
        self._discard(each for each in self.offsets() if each < offset)

    def prune(self, segment_bases: Collection[int], end_offset: int) -> list[File]:
        """Of those up to this offset remove all but the segments' own snapshots and the newest ones. The newest of all
        as an open file; none where there is none."""
        offsets = [offset for offset in self.offsets() if offset <= end_offset]
        others = [offset for offset in offsets if offset not in segment_bases]
        self._discard(others[:-_FLUSH_SNAPSHOTS])
        return [self._storage.open(file_name(each, SNAPSHOT)) for each in offsets[-1:]]

    def _discard(self, offsets: Iterable[int]) -> None:
        """Remove snapshots that nobody needs. One that cannot be removed does no harm, and is tried again later."""
        for offset in offsets:
            with suppress(StorageError):
                self._storage.delete(file_name(offset, SNAPSHOT))


class PlannedSnapshots:
    """What a flush writes of snapshots, and how many others it leaves."""

    def __init__(
        self, snapshots: Snapshots, drafts: list[SnapshotDraft], end_offset: int, segment_bases: Collection[int]
    ) -> None:
        self._snapshots = snapshots
        self._drafts = drafts
        self._end_offset = end_offset
        self._segment_bases = segment_bases

    @property
    def is_long(self) -> bool:
        """Whether there is something to pack: there are many producers."""
        return bool(self._drafts)

    def steps(self) -> Iterator[None]:
        """Pack them, some producers in a step."""
        for draft in self._drafts:
            yield from draft.steps()

    def write(self) -> list[File]:
        """Write them; the file that has to be on the device. StorageError: those that are not written stay owed.

        It may run in another thread, when `steps` has come to its end.
        """
        while self._drafts:
            self._snapshots.pay(self._drafts[0])
            del self._drafts[0]
        return self._snapshots.prune(self._segment_bases, self._end_offset)


def _pack(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else None
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        last.last_sequence if last else -1,
        last.last_offset if last else -1,
        last.last_offset - last.first_offset if last else 0,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        entry.txn_first_offset,
    )


def _unpack(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, txn_first_offset = fields
    entry = ProducerEntry(producer_id, epoch)
    entry.last_timestamp_ms = timestamp_ms
    entry.coordinator_epoch = coordinator_epoch
    entry.txn_first_offset = txn_first_offset
    if last_offset >= 0:
        entry.batches.append(_batch(last_sequence, last_offset, delta, timestamp_ms))
    return entry


def _batch(last_sequence: int, last_offset: int, delta: int, timestamp_ms: int) -> BatchMetadata:
    # A coordinator's batches have no sequences (-1). For others the first is computed from the last, and may wrap.
    first_sequence = -1 if last_sequence < 0 else (last_sequence - delta) % 2**31
    return BatchMetadata(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp_ms)
