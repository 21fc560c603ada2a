"""Damaged files between the end of a broker and its next start: what is done to them, and what must follow.

The broker starts, or refuses with a StorageError that names the file. A record that was there before and is not after
it is explained: by a line of the log that names its partition, or because its own bytes were changed, and who
reads it is told so by the CRC.
"""

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition
from ottla.broker.metadata.end_mark import EndMark
from ottla.broker.metadata.names import BOOTSTRAP_CHECKPOINT, METADATA_TOPIC
from ottla.broker.runtime.manifest import ABSENT, MANIFEST, decode_manifest
from ottla.log.checking import ANY_OFFSET
from ottla.log.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    decode_offsets,
)
from ottla.log.names import LOG
from ottla.wire.batch import check_integrity, find_whole_batch, parse_header
from sim.cluster.log import Entry
from sim.disk import SimDisk

#: Where a batch's CRC is behind it: length, leader epoch, magic byte, CRC. Before it is the base offset, which no CRC
#: covers, in Apache Kafka's files as in ours: a changed one is not found.
_BASE_OFFSET_BYTES = 8
_EPOCH_AT = 12
#: Own files of the data directory whose content says nothing: one is there or not, one is locked, and one was read by
#: the first start.
_SAYS_NOTHING = (CLEAN_SHUTDOWN_MARKER, ".lock", BOOTSTRAP_CHECKPOINT)
#: How often one of the directory's own files is drawn: beside the partitions' they are few.
_OWN = 0.15
#: How often a log file is cut exactly between two batches, and how often the base offset of its last batch is changed.
_EXACT = 0.3
_LAST_BASE = 0.2


class Damage(NamedTuple):
    """What was done to one file. `folder` is "" for the data directory's own files."""

    folder: str
    name: str
    how: str
    before: bytes
    #: Positions of bytes that were changed.
    flipped: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.folder}/{self.name} {self.how}"

    def is_named_in(self, text: str) -> bool:
        """Whether a sentence says where to look: the file, or at least the partition."""
        return self.name in text or (bool(self.folder) and self.folder in text)

    @property
    def must_be_told(self) -> bool:
        """Whether a start has to name the file, whatever it goes on with: one of the directory's own files."""
        return not self.folder and self.name not in _SAYS_NOTHING

    def hurts(self, folder: str, offset: int) -> bool:
        """Whether bytes of the batch with this offset were changed that say something of its records.

        Its leader epoch does not: no CRC covers it, and the batch is whole.
        """
        if self.folder != folder or not self.name.endswith(LOG) or not self.flipped:
            return False
        for position, entry in sound_entries(self.before):
            if entry.base_offset <= offset <= entry.last_offset:
                epoch = range(position + _EPOCH_AT, position + _EPOCH_AT + 4)
                return any(position <= at < position + len(entry.payload) and at not in epoch for at in self.flipped)
        return False


def do_damage(disk: SimDisk, rng: random.Random, *, clean: bool) -> Damage | None:
    """Remove, empty, cut or change a drawn file; None if the drawn one is left as it is."""
    folder, name = drawn_file(disk, rng)
    before = disk.content(folder, name)
    how = rng.choice(("removed", "emptied", "cut", "flipped"))
    is_metadata = folder == f"{METADATA_TOPIC}-0" and name.endswith(LOG)
    if is_metadata and how in ("cut", "flipped") and not clean and not _is_marked(disk, folder):
        return None  # nothing says which changes were acknowledged
    damage = Damage(folder, name, how, before)
    match how:
        case "removed" if _may_be_absent(disk, folder, name):
            return None  # killed in the middle of the first checkpoint: the file that comes last is not there yet
        case "removed":
            disk.change(folder, name, None)
        case "emptied" if name.endswith(LOG) and not is_metadata and _may_be_empty(disk, folder, name, clean=clean):
            return None  # retention may have made it, and deleted all before it: see docs
        case "emptied":
            disk.change(folder, name, b"")
        case "cut" if len(before) > 1:
            at = rng.randrange(1, len(before))
            ends = sorted(_ends(before) - {len(before)})
            if name.endswith(LOG) and ends and rng.random() < _EXACT:
                at = rng.choice(ends)
            if name.endswith(LOG) and not is_metadata and at in _ends(before):
                end_offset = max(entry.last_offset for _, entry in sound_entries(before[:at])) + 1
                if not _shows_a_cut(disk, folder, name, end_offset, clean=clean):
                    return None  # a log that ends with a whole batch: see docs
            disk.change(folder, name, before[:at])
        case "flipped" if before:
            positions = {rng.randrange(len(before)) for _ in range(rng.choice((1, 3)))}
            if name.endswith(LOG) and rng.random() < _LAST_BASE:
                positions = {
                    max((at for at, _ in sound_entries(before)), default=0) + rng.randrange(_BASE_OFFSET_BYTES)
                }
            if name.endswith(LOG) and not is_metadata:
                positions -= _base_offsets(before, but_last=_is_fixed(disk, folder, name, before))
            content = bytearray(before)
            for at in positions:
                content[at] ^= rng.randrange(1, 256)
            disk.change(folder, name, bytes(content))
            damage = damage._replace(flipped=tuple(sorted(positions)))
        case _:
            return None
    return damage


def drawn_file(disk: SimDisk, rng: random.Random) -> tuple[str, str]:
    """Folder and name of the file that is damaged."""
    files = disk.files()
    own = [each for each in files if not each[0]]
    return rng.choice(own if own and rng.random() < _OWN else files)


def _is_marked(disk: SimDisk, folder: str) -> bool:
    """Whether the metadata log's end mark can be used."""
    with suppress(CorruptDataError):
        return EndMark(disk.open_folder(folder)).read() is not None
    return False


def _may_be_absent(disk: SimDisk, folder: str, name: str) -> bool:
    """Whether the manifest says that one of the directory's own files may not be there."""
    if folder or ("", MANIFEST) not in disk.files():
        return False
    with suppress(CorruptDataError):
        return ABSENT in decode_manifest(disk.content("", MANIFEST)).checksums.get(name, ())
    return False


def sound_entries(content: bytes, next_offset: int = 0, limit_offset: int = ANY_OFFSET) -> Iterator[tuple[int, Entry]]:
    """Position and batch of all that the CRC proves whole, whatever lies between them.

    No CRC covers a base offset: a batch that says one below `next_offset`, or below those before it, is none; nor is
    one that says `limit_offset`, where the next file begins, or more.
    """
    position = 0
    while position < len(content):
        try:
            header = parse_header(content, position)
            check_integrity(content, position, header)
            if not next_offset <= header.base_offset < limit_offset:
                raise CorruptDataError("a batch of elsewhere")
        except CorruptDataError:
            found = find_whole_batch(memoryview(content), position + 1, next_offset, limit_offset)
            if found is None:
                return
            position = found[0]
            continue
        payload = content[position : position + header.size_bytes]
        yield position, Entry(header.base_offset, header.last_offset, header.partition_leader_epoch, header, payload)
        position, next_offset = position + header.size_bytes, header.last_offset + 1


def _ends(content: bytes) -> frozenset[int]:
    return frozenset(position + len(entry.payload) for position, entry in sound_entries(content))


def _base_offsets(content: bytes, *, but_last: bool) -> set[int]:
    """Where the base offsets of the batches are; `but_last`: a start finds that of the last one."""
    starts = [position for position, _ in sound_entries(content)]
    return {start + at for start in (starts[:-1] if but_last else starts) for at in range(_BASE_OFFSET_BYTES)}


def _is_internal(folder: str) -> bool:
    return folder.startswith("__")


def _is_fixed(disk: SimDisk, folder: str, name: str, content: bytes) -> bool:
    """Whether the last batch of a log file has its offsets from its neighbours: beside a hole it may have others."""
    if _is_internal(folder):
        return False  # it may have been compacted
    next_offset, is_next = int(name.removesuffix(LOG)), True
    for _, entry in sound_entries(content):
        next_offset, is_next = entry.last_offset + 1, entry.base_offset == next_offset
    return is_next and next_offset >= _known_end(disk, folder, name)


def _known_end(disk: SimDisk, folder: str, name: str) -> int:
    """How far a log file must reach: up to the next one; the newest, up to the recovery point."""
    names = sorted(each for at, each in disk.files() if at == folder and each.endswith(LOG))
    if name != names[-1]:
        return int(names[names.index(name) + 1].removesuffix(LOG))
    return _said_in(disk, RECOVERY_POINT_CHECKPOINT, folder)


def _said_in(disk: SimDisk, checkpoint: str, folder: str) -> int:
    """What a checkpoint of the directory says of a partition; 0 if it says nothing."""
    topic, _, number = folder.rpartition("-")
    with suppress(CorruptDataError):
        return decode_offsets(disk.own_files().read(checkpoint) or b"").get(TopicPartition(topic, int(number)), 0)
    return 0


def _shows_a_cut(disk: SimDisk, folder: str, name: str, end_offset: int, *, clean: bool) -> bool:
    """Whether a start can find that a log file ends between two batches, at this offset: other files know of more."""
    if _is_internal(folder):
        return False  # it may have been compacted
    return clean or end_offset < _known_end(disk, folder, name)


def _may_be_empty(disk: SimDisk, folder: str, name: str, *, clean: bool) -> bool:
    """Whether a log file may be empty by right, as far as a start can know: it is alone, and all before it was flushed,
    or deleted."""
    alone = [each for at, each in disk.files() if at == folder and each.endswith(LOG)] == [name]
    base_offset = int(name.removesuffix(LOG))
    known_offset = max(_known_end(disk, folder, name), _said_in(disk, LOG_START_OFFSET_CHECKPOINT, folder))
    return alone and not clean and 0 < base_offset == known_offset


class Heard(logging.Handler):
    """The broker's log while it starts."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        #: Texts of exceptions that were logged with their traceback.
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("ottla.broker"):
            return
        if record.levelno >= logging.WARNING:
            self.lines.append(record.getMessage())
        if record.exc_info:
            self.tracebacks.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def listening() -> Iterator[Heard]:
    """Hear what the broker logs, also where logging is disabled. Nothing is printed meanwhile."""
    heard, root = Heard(), logging.root
    disabled, handlers = root.manager.disable, root.handlers[:]
    root.handlers[:] = [heard]
    logging.disable(logging.NOTSET)
    try:
        yield heard
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers
