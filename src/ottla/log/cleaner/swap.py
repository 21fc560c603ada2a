"""How a cleaned segment takes the place of old ones, by Kafka's file names, and how a start finishes that.

    1. it is written beside them, as `.log.cleaned` and so on, and synced;
    2. its files are renamed to `.swap`; when all are, and the device knows, it will replace the old ones for certain,
       also at a start: from here on retention must not take any of them out of the log;
    3. the old ones are deleted, and the device knows;
    4. its log is renamed to its own name, and the device knows; then the indexes.

Whatever a kill or a loss of power leaves says by its names where that was. With a `.cleaned` file there, step 2 has not
ended and the old segments are whole: the new one is removed. Else a `.swap` log goes through steps 3 and 4 (`finish`).
Apache Kafka does the same, so each of them finishes what the other has begun.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.names import CLEANED, LOG, OFFSET_INDEX, SWAP, TIME_INDEX, TXN_INDEX, base_offset, file_name
from ottla.log.segment import Segment, delete_segments
from ottla.log.storage import Buffer, File, Storage, SyncNote
from ottla.wire.batch import check_integrity, iter_headers

#: A segment's files, in the order in which they get their names.
_FILES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)


class MovedFiles:
    """A partition's directory in which each file has a suffix behind its name, until `move` takes it away (a Storage).

    So a segment with these files needs not know of its suffix.
    """

    def __init__(self, storage: Storage, suffix: str) -> None:
        self._storage = storage
        self._suffix = suffix
        #: Of the files that were moved.
        self._moved: dict[str, str] = {}

    def move(self, names: Iterable[str], suffix: str) -> None:
        """Rename these files, from the suffix that they have to another one.

        StorageError when the disk refuses; the next call goes on with those that are left.
        """
        for name in names:
            before = self._moved.get(name, self._suffix)
            if before != suffix:
                self._storage.rename(name + before, name + suffix)
                self._moved[name] = suffix

    def settle(self) -> None:
        """All files have their own names, and so has every file that the segment may still make."""
        self._suffix = ""
        self._moved.clear()

    def names(self) -> list[str]:
        return self._storage.names()

    def open(self, name: str, *, create: bool = False) -> File:
        return self._storage.open(self._real(name), create=create)

    def read(self, name: str) -> bytes | None:
        return self._storage.read(self._real(name))

    def write(self, name: str, content: Buffer, *, sync: bool = True) -> None:
        self._storage.write(self._real(name), content, sync=sync)

    def delete(self, name: str) -> None:
        self._storage.delete(self._real(name))

    def rename(self, name: str, to: str) -> None:
        self._storage.rename(self._real(name), self._real(to))

    @property
    def sync_note(self) -> SyncNote:
        return self._storage.sync_note

    def mark(self, name: str) -> None:
        self._storage.mark(name)

    def unmark(self, name: str) -> None:
        self._storage.unmark(name)

    def sync_names(self) -> None:
        self._storage.sync_names()

    def modified_ms(self, name: str) -> int:
        return self._storage.modified_ms(self._real(name))

    def set_modified_ms(self, name: str, modified_ms: int) -> None:
        self._storage.set_modified_ms(self._real(name), modified_ms)

    def _real(self, name: str) -> str:
        return name + self._moved.get(name, self._suffix)


class Swap:
    """A cleaned segment that takes the place of the segments with the base offsets `old`."""

    def __init__(self, storage: Storage, files: MovedFiles, segment: Segment, old: Sequence[int]) -> None:
        self._storage = storage
        self._files = files
        self.segment = segment
        self.old = tuple(old)
        #: The owner of the log wants it: until it is in the log, or was taken back, the old segments stay there.
        self.is_accepted = self.is_taken_back = False
        #: The owner has made the switch, and these are out of the log: their files have to go.
        self.is_in_log = False
        self.retired: list[Segment] = []
        self._has_log = False
        #: All files have their own names.
        self.is_settled = False
        kinds = _FILES if segment.txn_index.entries else _FILES[:-1]
        self._names = [file_name(segment.base_offset, kind) for kind in kinds]

    def announce(self) -> None:
        """Step 2, of an accepted one. StorageError when the disk refuses; `forget` then."""
        self._storage.sync_names()
        self._files.move(self._names, SWAP)
        self._storage.sync_names()

    def delete_old(self) -> None:
        """Step 3. StorageError when a file cannot be deleted; the next call tries it again."""
        delete_segments(self._storage, self.retired)

    def settle(self) -> None:
        """Step 4: `sync` after it, then once more. StorageError when the disk refuses; the next call goes on.

        The log's owner calls this: meanwhile nobody may open the segment's files.
        """
        self._files.move(self._names if self._has_log else self._names[:1], "")
        if self._has_log:
            self._files.settle()
        self.is_settled, self._has_log = self._has_log, True

    def sync(self) -> None:
        """The device knows the new names."""
        self._storage.sync_names()


def forget(storage: Storage) -> None:
    """Remove what a pass that goes no further has left: the old segments stay. StorageError; the next call goes on.

    Not while a swap that is in the log is not settled. Step 2 is undone before anything goes: beside a `.cleaned` log
    no `.swap` file counts, and indexes that are left do not look as if somebody had removed their log.
    """
    names = storage.names()
    swaps = [name for name in names if name.endswith(SWAP)]
    logs = [name for name in swaps if name.endswith(LOG + SWAP)]
    for name in logs:
        storage.rename(name, name.removesuffix(SWAP) + CLEANED)
    if swaps:
        storage.sync_names()
        for name in swaps:
            if name not in logs:
                storage.delete(name)
        storage.sync_names()
    for name in storage.names():
        if name.endswith(CLEANED):
            storage.delete(name)


def without_log(names: Collection[str]) -> frozenset[int]:
    """Base offsets of cleaned segments that are in the log, and of which only indexes without their own names are left.

    An index gets its own name after its log has it (step 4). So the log was there, and somebody has removed it.
    """
    cleaned = [_base(name) for name in names if name.endswith(CLEANED)]
    bases = {_base(name) for name in names if name.endswith(SWAP)} - {-1}
    return frozenset(
        base
        for base in bases
        if base < min(cleaned, default=base + 1)
        and file_name(base, LOG) not in names
        and file_name(base, LOG) + SWAP not in names
    )


def finish(storage: Storage, names: Iterable[str]) -> bool:
    """At a start: finish what was interrupted, and say whether there was something.

    StorageError when a segment that should take the place of others is damaged: they may be the only good ones.
    """
    cleaned = [name for name in names if name.endswith(CLEANED)]
    swaps = {name: _base(name) for name in names if name.endswith(SWAP)}
    if not cleaned and not swaps:
        return False
    first_cleaned = min(map(_base, cleaned), default=None)
    for name in [each for each, base in swaps.items() if first_cleaned is not None and base >= first_cleaned]:
        storage.delete(name)
        del swaps[name]
    storage.sync_names()  # without the `.cleaned` files it would look as if these were whole
    for name in cleaned:
        storage.delete(name)
    _replace(storage, swaps)
    return True


def _replace(storage: Storage, swaps: dict[str, int]) -> None:
    """Steps 3 and 4. As long as there is a `.swap` log, indexes without that suffix are old ones."""
    logs = {base: name for name, base in swaps.items() if name == file_name(base, LOG) + SWAP}
    if logs:
        end_offset = max(_end_offset(storage, name, base) for base, name in logs.items())
        _must_be_made_of(storage, logs, end_offset)
        old: dict[int, list[str]] = {}
        for name in storage.names():
            base = next((each for each in (base_offset(name, kind) for kind in _FILES) if each is not None), None)
            if base is not None and (base in logs or min(logs) <= base < end_offset):
                old.setdefault(base, []).append(name)
        for base in sorted(old):  # what is left is held against the new ones at the next start
            for name in old[base]:
                storage.delete(name)
            storage.sync_names()
        for base, name in logs.items():
            storage.rename(name, file_name(base, LOG))
        storage.sync_names()
    present = storage.names()
    for name, base in swaps.items():
        if base not in logs and file_name(base, LOG) not in present:
            storage.delete(name)
        elif base not in logs or name != logs[base]:
            storage.rename(name, name.removesuffix(SWAP))
    storage.sync_names()


def _must_be_made_of(storage: Storage, logs: Mapping[int, str], end_offset: int) -> None:
    """StorageError unless all batches of the `.swap` logs are those of old files, as far as these are still there.

    No CRC covers a base offset. If it is changed, segments behind those that were cleaned would be deleted, too.
    """
    bases = sorted(each for each in (base_offset(name, LOG) for name in storage.names()) if each is not None)
    # The newest segment is never cleaned, nor deleted by this.
    is_beyond = not bases or end_offset > bases[-1]
    old = {base: _marks(storage, file_name(base, LOG)) for base in bases if min(logs) <= base < end_offset}
    for base, name in logs.items():
        for offset, mark in _marks(storage, name).items():
            before = max((each for each in old if each <= offset + mark[0]), default=None)
            if is_beyond or (before is not None and old[before].get(offset) != mark):
                raise StorageError(
                    f"{name} was about to take the place of the segments from offset {base} on, and has a batch at "
                    f"offset {offset} that is not from them: with a changed base offset it would delete others, too. "
                    f"If the old ones are all there, remove the files that end in {SWAP}; else put {name} back from a "
                    "copy"
                )


def _marks(storage: Storage, name: str) -> dict[int, tuple[int, ...]]:
    """What a cleaning keeps of each batch's header, by base offset, up to the first bytes that are no batch."""
    found: dict[int, tuple[int, ...]] = {}
    file = storage.open(name)
    try:
        with file.map() as view, suppress(CorruptDataError):
            for _, header in iter_headers(view, strict=True):
                found[header.base_offset] = (
                    header.last_offset_delta,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                )
    finally:
        with suppress(StorageError):
            file.close()
    return found


def _base(name: str) -> int:
    """The base offset in the name of a segment's file; -1 for a name that is none."""
    stem = name.partition(".")[0]
    return int(stem) if len(stem) == 20 and stem.isdecimal() else -1


def _end_offset(storage: Storage, name: str, base: int) -> int:
    """The offset behind the last batch of a segment that should take the place of others."""
    end_offset = base
    file = storage.open(name)
    try:
        with file.map() as view:
            for at, header in iter_headers(view, strict=True):
                check_integrity(view, at, header)
                if header.base_offset < end_offset:
                    raise CorruptDataError(f"offsets go back at {header.base_offset}")
                end_offset = header.last_offset + 1
    except CorruptDataError as fault:
        raise StorageError(
            f"{name} was about to take the place of the segments from offset {base} on, and is damaged ({fault}). If "
            f"they are all there, remove the files that end in {SWAP}; else put {name} back from a copy"
        ) from None
    finally:
        with suppress(StorageError):
            file.close()
    return end_offset
