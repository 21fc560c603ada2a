"""Bugs of a log, each of them one that somebody has found in it: `tests/log/histories` must find them again."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from ottla.log.flush import FlushPlan, Synced
from ottla.log.memory import MemoryFile
from ottla.log.producers import ProducerState
from ottla.log.segments import Segments
from ottla.log.snapshot import Snapshots
from ottla.log.storage import sync_whole
from sim.mutants import broker


def bugs() -> dict[str, AbstractContextManager[None]]:
    """All of them, by name. Each context may be entered once."""
    return {
        "readers-need-no-sync": readers_need_no_sync(),
        "names-are-not-synced": names_are_not_synced(),
        "retired-files-are-not-synced": retired_files_are_not_synced(),
        "the-snapshot-goes-unsynced": the_snapshot_goes_unsynced(),
        "nothing-is-written-again": nothing_is_written_again(),
        "no-batch-is-remembered": no_batch_is_remembered(),
        "keeps-a-torn-tail": broker.keeps_a_torn_tail(),
        "syncs-nothing": broker.syncs_nothing(),
        "dedup-window-of-four": broker.dedup_window_of_four(),
        "reads-beyond-open-transactions": broker.reads_beyond_open_transactions(),
    }


@contextmanager
def readers_need_no_sync() -> Iterator[None]:
    """With `flush.messages` the high watermark does not wait for the device."""
    with patch.object(Synced, "high_watermark", property(lambda self: self._log.end_offset)):
        yield


@contextmanager
def names_are_not_synced() -> Iterator[None]:
    """A sync brings the bytes of files to the device, and not the files' names."""
    with patch.object(FlushPlan, "sync", lambda self: sync_whole(self.storage, self.write())):
        yield


@contextmanager
def retired_files_are_not_synced() -> Iterator[None]:
    """What retention has taken out of the log, and not deleted yet, is not synced before what is behind it."""
    with patch.object(Segments, "retired_files", lambda self, offset: []):
        yield


@contextmanager
def the_snapshot_goes_unsynced() -> Iterator[None]:
    """Segments are deleted before the snapshot that knows their producers is on the device."""
    with patch.object(Snapshots, "begin_at", lambda self, offset: None):
        yield


@contextmanager
def nothing_is_written_again() -> Iterator[None]:
    """After a refused sync the next one succeeds, without what the system has dropped."""

    def write_again(self: MemoryFile) -> None:
        self.has_dropped = False

    with patch.object(MemoryFile, "write_again", write_again):
        yield


@contextmanager
def no_batch_is_remembered() -> Iterator[None]:
    """A batch that is sent again is never a duplicate."""
    with patch.object(ProducerState, "find_duplicate", lambda self, header: None):
        yield
