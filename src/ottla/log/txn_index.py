"""The aborted-transaction index of a segment (.txnindex): which transactions were aborted by markers in it.

An entry holds version i16 (0), producer id i64, first offset i64, last offset i64 (the marker's), and the last stable
offset (LSO) at that moment i64. When an entry's LSO is after the end of a fetch, no later entry can matter to that
fetch. Aborts are rare, so entries are kept as tuples and written one by one. The file exists from the first abort on.

An entry counts as soon as its marker is in the log, even if the disk has no room for the entry: without it readers
would be shown aborted records. It is then written together with the next entry, or by `save`.
"""

from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.storage import Storage, sync_whole
from ottla.wire.crc import crc32c

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTxn(NamedTuple):
    """One aborted transaction of one partition."""

    producer_id: int
    first_offset: int
    #: Offset of the abort marker.
    last_offset: int
    last_stable_offset: int


class AbortsSeal(NamedTuple):
    """What an index must hold at least: so many entries, with this checksum."""

    entries: int
    checksum: int


_NO_SEAL: Final = AbortsSeal(0, 0)


class TransactionIndex:
    """The entries of one segment, oldest marker first."""

    __slots__ = (
        "_is_changed",
        "_is_doubted",
        "_is_unsettled",
        "_saved",
        "_seal",
        "_storage",
        "_told",
        "entries",
        "name",
    )

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self.name = name
        self.entries: list[AbortedTxn] = []
        #: How many of the entries the file holds.
        self._saved = 0
        #: Of entries that were sealed before.
        self._seal = _NO_SEAL
        self._is_doubted = False
        #: The file is still the one that is doubted.
        self._is_unsettled = False
        #: The file may hold, or lack, what the device does not know of. A flush brings it there.
        self._is_changed = False
        #: What the file had told when it was doubted; None if it could not be read.
        self._told: list[AbortedTxn] | None = None

    def seal(self) -> AbortsSeal:
        """What the file must hold from now on. No checksum protects Kafka's own format."""
        done, count = self._seal, len(self.entries)
        if done.entries != count:  # that of a closed segment is asked for at each checkpoint
            self._seal = self._sealed(done if done.entries <= count else _NO_SEAL, count)
        return self._seal

    def fits(self, seal: AbortsSeal) -> bool:
        """Whether the entries begin with those that were sealed."""
        if seal.entries > len(self.entries) or self._sealed(_NO_SEAL, seal.entries) != seal:
            return False
        self._seal = seal
        return True

    def _sealed(self, done: AbortsSeal, count: int) -> AbortsSeal:
        return AbortsSeal(count, crc32c(_packed(self.entries[done.entries : count]), done.checksum))

    def load(self, base_offset: int, limit_offset: int) -> None:
        """Read the file. CorruptDataError when its entries do not fit a segment with offsets from base to limit."""
        content = self._storage.read(self.name) or b""
        if not content:
            raise CorruptDataError(f"{self.name}: it is empty, and it is only made for an entry")
        if len(content) % _ENTRY.size:
            raise CorruptDataError(f"{self.name}: {len(content)} bytes are no whole entries of {_ENTRY.size}")
        entries = []
        for version, *fields in _ENTRY.iter_unpack(content):
            entry = AbortedTxn(*fields)
            in_place = base_offset <= entry.last_offset < limit_offset
            sane = 0 <= entry.first_offset < entry.last_offset and entry.last_stable_offset <= entry.last_offset + 1
            if version != _VERSION or not in_place or not sane or min(entry.producer_id, entry.last_stable_offset) < 0:
                raise CorruptDataError(f"{self.name}: entry {entry} of version {version} cannot be")
            entries.append(entry)
            base_offset = entry.last_offset + 1
        self.entries, self._saved, self._seal = entries, len(entries), _NO_SEAL

    def append(self, entry: AbortedTxn) -> None:
        """Add the transaction whose abort marker was just written."""
        self.extend((entry,))

    def extend(self, entries: Iterable[AbortedTxn]) -> None:
        """Add several."""
        self.entries.extend(entries)
        if not self._is_unsettled:
            with suppress(StorageError):
                self.save()

    def save(self) -> None:
        """Write the entries that the file does not have yet. StorageError when that fails."""
        self.settle()
        if self._saved == len(self.entries):
            return
        self._is_changed = True
        file, packed = self._storage.open(self.name, create=True), _packed(self.entries[self._saved :])
        try:
            file.truncate(min(file.size_bytes, self._saved * _ENTRY.size))
            file.append([packed])
        finally:
            file.close()
        if self._seal.entries == self._saved:  # a checkpoint would have to go through them again
            self._seal = AbortsSeal(len(self.entries), crc32c(packed, self._seal.checksum))
        self._saved = len(self.entries)

    def clear(self) -> None:
        """Forget every entry, and remove the file."""
        self._is_changed = self._is_changed or bool(self.entries)
        self._storage.delete(self.name)
        self.entries, self._saved, self._seal = [], 0, _NO_SEAL
        self._is_unsettled = False

    def doubt(self, *, is_read: bool) -> None:
        """Forget every entry, because the file was not read, or nothing proves it: the markers say what is right.

        The file stays until `settle`: if a start dies before that, the next one has to doubt it, too. Where no file is
        left, and a checkpoint says nothing of one, a start takes it that there was never an abort.
        """
        self._is_doubted, self._told = True, self.entries if is_read else None
        self.entries, self._saved, self._seal = [], 0, _NO_SEAL
        self._is_unsettled = True

    def settle(self) -> None:
        """All markers of the segment are read: write a file that was doubted anew, as a whole. StorageError; the next
        call tries it again."""
        if not self._is_unsettled:
            return
        if self.entries:
            self._storage.write(self.name, _packed(self.entries))
        else:
            self._storage.delete(self.name)
            self._is_changed = True
        self._is_unsettled, self._saved = False, len(self.entries)

    @property
    def was_wrong(self) -> bool:
        """Whether the file was doubted, and the markers have said something else."""
        return self._is_doubted and self._told != self.entries

    def truncate_to(self, offset: int) -> None:
        """Forget transactions whose marker is at `offset` or above."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if not kept and self.entries:
            self.clear()
        elif len(kept) < len(self.entries):
            self._saved = min(self._saved, len(kept))
            if self._saved:
                self._is_changed = True
                file = self._storage.open(self.name)
                file.truncate(self._saved * _ENTRY.size)
                file.close()
            self.entries, self._seal = kept, _NO_SEAL

    def sync_changes(self) -> bool:
        """Have on the device what a start has changed in the file; whether there was anything. Its name is not synced,
        nor that it is gone.

        StorageError.
        """
        if not self._is_changed:
            return False
        if not self.entries:
            return True
        self.save()
        file = self._storage.open(self.name)
        try:
            if self._storage.sync_note.stays:
                file.suspect()  # an earlier process may have been refused its sync
            sync_whole(self._storage, [file])
        finally:
            file.close()
        return True

    def overlapping(self, from_offset: int, end_offset: int) -> tuple[list[AbortedTxn], bool]:
        """Transactions aborted here with records in [from_offset, end_offset); whether later segments may have more."""
        entries = self.entries
        first = bisect_left(entries, from_offset, key=lambda entry: entry.last_offset)
        found = []
        for entry in entries[first:]:
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, False
        return found, True


def _packed(entries: Iterable[AbortedTxn]) -> bytes:
    """As the file has them."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)
