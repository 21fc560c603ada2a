"""The storage port's real side, and the log on it."""

import errno
import os
import resource
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import pytest

from ottla.base.errors import StorageError
from ottla.broker.disk import InTheWayError
from ottla.broker.storage import DirectoryStorage
from ottla.log.config import LogConfig
from ottla.log.names import UNFINISHED_SYNC
from ottla.wire.special_timestamp import SpecialTimestamp
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import SMALL, append, append_in_transaction, content, end, every_batch, open_log


def test_a_log_on_disk_survives_kill_9_and_a_clean_stop(tmp_path: Path) -> None:
    log = open_log(DirectoryStorage(tmp_path / "orders-0"), SMALL)
    for number in range(50):
        append(log, idempotent(number, size=number))
    append_in_transaction(log, 0, producer_id=9)
    end(log, commit=False, producer_id=9)
    before = every_batch(log)
    killed = open_log(DirectoryStorage(tmp_path / "orders-0"), SMALL)
    assert every_batch(killed) == before
    killed.flush()
    killed.close()
    again = open_log(DirectoryStorage(tmp_path / "orders-0"), SMALL, clean=True)
    assert every_batch(again) == before
    assert append(again, idempotent(49, size=49)).duplicate


def test_a_closed_log_takes_nothing_more_and_leaves_the_files_to_the_next_one(tmp_path: Path) -> None:
    log = open_log(DirectoryStorage(tmp_path))
    append(log, batch(3))
    log.close()
    following = open_log(DirectoryStorage(tmp_path), clean=True)
    append(following, batch())
    for change in (lambda: append(log, batch()), lambda: end(log, commit=True), lambda: log.roll(NOW_MS)):
        with pytest.raises(StorageError, match="is closed"):
            change()
    assert (log.end_offset, following.end_offset) == (3, 4)
    assert len(every_batch(open_log(DirectoryStorage(tmp_path)))) == 2


def test_a_closed_file_has_no_descriptor_that_may_be_another_file_s_by_now(tmp_path: Path) -> None:
    file = DirectoryStorage(tmp_path).open("closed", create=True)
    file.append([b"before"])
    file.close()
    with (tmp_path / "other").open("w+b") as other:
        other.write(b"untouched")
        other.flush()
        with pytest.raises(StorageError):
            file.append([b"behind"])
        with pytest.raises(StorageError):
            file.sync()
        other.seek(0)
        assert other.read() == b"untouched"
    assert file.fileno() == -1
    file.close()


def test_a_torn_tail_on_disk_is_cut(tmp_path: Path) -> None:
    log = open_log(DirectoryStorage(tmp_path))
    append(log, batch(3))
    log.close()
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(path.read_bytes() + batch()[:-1])
    found = open_log(DirectoryStorage(tmp_path))
    assert (found.end_offset, found.findings.truncated_bytes) == (3, len(batch()) - 1)
    assert path.stat().st_size == len(batch(3))


def test_a_file_is_readable_until_nobody_holds_it(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    file = storage.open("a", create=True)
    file.append([b"one", memoryview(b"two")])
    storage.delete("a")
    assert storage.names() == []
    assert file.read(2, 100) == b"etwo"
    descriptor = file.fileno()
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_mapped_file_shows_what_is_in_it(tmp_path: Path) -> None:
    file = DirectoryStorage(tmp_path).open("a", create=True)
    with file.map() as view:
        assert bytes(view) == b""
    file.append([b"x" * 5_000])
    with file.map() as view:
        assert bytes(view) == b"x" * 5_000


def test_small_files_are_replaced_whole(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    for sync in (True, False):
        storage.write("a", b"first")
        storage.write("a", b"second", sync=sync)
        assert storage.read("a") == b"second"
    assert storage.names() == ["a"]
    assert storage.read("b") is None
    storage.delete("b")


def test_a_missing_file_is_a_storage_fault(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=os.strerror(errno.ENOENT)):
        DirectoryStorage(tmp_path).open("a")


def test_a_write_that_does_not_fit_is_taken_back(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    log = open_log(storage)
    append(log, batch())
    size, old = log.size_bytes, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, old[1]))
    try:
        with pytest.raises(StorageError, match=os.strerror(errno.EFBIG)):
            append(log, batch())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert (tmp_path / "00000000000000000000.log").stat().st_size == size
    assert append(log, batch()).base_offset == 1
    assert len(every_batch(log)) == 2


def test_a_slice_names_its_descriptor_for_sendfile(tmp_path: Path) -> None:
    log = open_log(DirectoryStorage(tmp_path))
    log.append(batch(2), now_ms=NOW_MS)
    (piece,) = log.read(0, 10_000).slices
    assert os.pread(piece.file.fileno(), piece.length_bytes, piece.position) == content(log.read(0, 10_000))


def _is_a_directory(directory: Path) -> None:
    (directory / "a").mkdir()


def _is_gone(directory: Path) -> None:
    directory.rmdir()


@pytest.mark.parametrize(
    ("prepare", "act"),
    [
        (_is_a_directory, lambda storage: storage.delete("a")),
        (_is_a_directory, lambda storage: storage.read("a")),
        (_is_a_directory, lambda storage: storage.write("a", b"x")),
        (_is_gone, lambda storage: storage.names()),
        (_is_gone, lambda storage: storage.modified_ms("a")),
        (_is_gone, lambda storage: storage.open("a", create=True)),
    ],
    ids=["delete", "read", "write", "names", "modified_ms", "open"],
)
def test_what_the_system_refuses_is_a_storage_fault(
    tmp_path: Path, prepare: Callable[[Path], None], act: Callable[[DirectoryStorage], object]
) -> None:
    directory = tmp_path / "orders-0"
    storage = DirectoryStorage(directory)
    prepare(directory)
    with pytest.raises(StorageError, match="orders-0"):
        act(storage)


def open_files(directory: Path) -> int:
    """How many descriptors of this process are files of `directory`; other tests' are closed when garbage is."""
    ours = {(each.st_dev, each.st_ino) for each in map(os.stat, directory.iterdir())}
    count = 0
    for descriptor in Path("/dev/fd").iterdir():
        with suppress(OSError):  # the one that lists them is closed by now
            found = os.fstat(int(descriptor.name))
            count += (found.st_dev, found.st_ino) in ours
    return count


def test_a_search_by_time_leaves_no_old_segment_open(tmp_path: Path) -> None:
    log = open_log(DirectoryStorage(tmp_path), LogConfig(segment_bytes=len(batch())))
    for number in range(30):
        append(log, batch(timestamps_ms=[NOW_MS + number]))
    before = open_files(tmp_path)
    newest = log.offset_for_timestamp(SpecialTimestamp.MAX_TIMESTAMP)
    assert newest is not None
    assert (newest.timestamp_ms, newest.offset) == (NOW_MS + 29, 29)
    for number in range(30):
        found = log.offset_for_timestamp(NOW_MS + number)
        assert found is not None
        assert found.offset == number
    assert open_files(tmp_path) == before


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_may_have_more_segments_than_a_process_may_have_files(tmp_path: Path, clean: bool) -> None:
    config = LogConfig(segment_bytes=len(batch()))
    before = len(list(Path("/dev/fd").iterdir()))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 150, hard))
    try:
        log = open_log(DirectoryStorage(tmp_path), config)
        for number in range(200):
            append(log, batch(timestamps_ms=[NOW_MS + number]))
        if clean:
            log.close()
        found = open_log(DirectoryStorage(tmp_path), config, clean=clean)
        found.flush()
        assert (found.end_offset, found.recovery_point) == (200, 200)
        del log
        assert open_files(tmp_path) < 15
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_file_whose_sync_was_refused_is_written_again_whole_and_once(
    tmp_path: Path,
) -> None:
    content = os.urandom(2_500_000)
    storage = DirectoryStorage(tmp_path)
    file = storage.open("a", create=True)
    file.append([content])
    again: list[tuple[int, bytes]] = []

    def refused(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def noted(descriptor: int, data: bytes, position: int) -> int:
        again.append((position, data[:1_000_000]))
        return write(descriptor, data[:1_000_000], position)  # a system may write less than it was given

    write, patch = os.pwrite, pytest.MonkeyPatch()
    with patch.context() as broken:
        broken.setattr(os, "fdatasync", refused)
        with pytest.raises(StorageError, match="Input/output error"):
            file.sync()
    with patch.context() as watched:
        watched.setattr(os, "pwrite", noted)
        storage.open("a").write_again()  # another handle of the file
        written = len(again)
        file.write_again()
        assert len(again) == written, "once"
    file.sync()
    assert b"".join(data for _, data in again) == file.read(0, len(content)) == content
    assert [position for position, _ in again] == [0, 1_000_000, 1 << 20, 2_048_576, 1 << 21]


def test_a_file_whose_sync_was_not_refused_is_not_written_again(tmp_path: Path) -> None:
    file = DirectoryStorage(tmp_path).open("a", create=True)
    file.append([b"abc"])
    file.sync()

    def refused(descriptor: int, data: bytes, position: int) -> int:
        raise AssertionError("nothing is to be written")

    with pytest.MonkeyPatch.context() as watched:
        watched.setattr(os, "pwrite", refused)
        file.write_again()


def test_of_two_threads_that_sync_a_file_neither_returns_when_the_system_has_refused_one(tmp_path: Path) -> None:
    """Linux tells one of them. The other one waits for it, or would say that all is on the device."""
    file = DirectoryStorage(tmp_path).open("a", create=True)
    file.append([b"abc"])
    faults: list[StorageError] = []
    other_is_through = threading.Event()

    def sync() -> None:
        try:
            file.sync()
        except StorageError as fault:
            faults.append(fault)
        other_is_through.set()

    other = threading.Thread(target=sync)

    def refused_once(descriptor: int) -> None:
        if not other.ident:
            other.start()
            assert not other_is_through.wait(0.05), "it waits"
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(os, "fdatasync", refused_once)
        with pytest.raises(StorageError, match="Input/output error"):
            file.sync()
        other.join()
    assert "has not been written again yet" in str(*faults)
    file.write_again()
    file.sync()


def test_a_sync_does_not_return_when_another_handle_was_refused_meanwhile_and_has_written_the_file_again(
    tmp_path: Path,
) -> None:
    """The system told the other one; what this one waited for is in pages that nobody has synced yet."""
    storage = DirectoryStorage(tmp_path)
    file = storage.open("a", create=True)
    file.append([b"abc"])
    other, calls = storage.open("a"), count()

    def refuses_the_other(descriptor: int) -> None:
        if next(calls):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        with pytest.raises(StorageError, match="Input/output error"):
            other.sync()
        other.write_again()

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(os, "fdatasync", refuses_the_other)
        with pytest.raises(StorageError, match="has not been written again yet"):
            file.sync()
    file.sync()


def test_what_was_cut_stays_cut_when_a_file_is_written_again(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    file = storage.open("a", create=True)
    file.append([bytes(2_500_000)])
    file.suspect()
    storage.open("a").truncate(1_500_000)
    file.write_again()
    assert storage.open("a").size_bytes == 1_500_000
    file.sync()


def test_a_mark_is_for_the_next_process_and_not_for_the_device(tmp_path: Path) -> None:
    synced: list[int] = []
    storage = DirectoryStorage(tmp_path / "t-0")
    storage.sync_names()
    with pytest.MonkeyPatch.context() as watched:
        watched.setattr(os, "fsync", synced.append)
        storage.mark("note")
        storage.mark("note")
        assert DirectoryStorage(tmp_path / "t-0").names() == ["note"]
        storage.unmark("note")
        storage.unmark("note")
        assert storage.names() == []
        storage.sync_names()
    assert synced == []
    (tmp_path / "t-0" / "note").mkdir()
    with pytest.raises(InTheWayError):
        storage.mark("note")
    with pytest.raises(StorageError):
        storage.unmark("note")


def test_in_a_folder_that_is_gone_nobody_needs_a_mark(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path / "t-0")
    (tmp_path / "t-0").rmdir()
    storage.mark("note")
    storage.unmark("note")
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_has_nothing_of_one_of_its_name_that_was_dropped(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    file = storage.open("a", create=True)
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(os, "fdatasync", lambda descriptor: os.close(-1))
        with pytest.raises(StorageError):
            file.sync()
    storage.delete("a")
    storage.open("a", create=True).sync()


def test_what_was_refused_of_a_file_goes_with_it_to_its_next_name_and_not_to_the_next_file_of_its_name(
    tmp_path: Path,
) -> None:
    storage = DirectoryStorage(tmp_path)
    file = storage.open("a.swap", create=True)
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(os, "fdatasync", lambda descriptor: os.close(-1))
        with pytest.raises(StorageError):
            file.sync()
    storage.rename("a.swap", "a")
    storage.write("a.swap", b"another")
    storage.open("a.swap").sync()
    with pytest.raises(StorageError, match="has not been written again yet"):
        storage.open("a").sync()
    storage.open("a").write_again()
    file.sync()


def test_a_sync_that_ends_after_its_topic_was_deleted_leaves_the_note_of_the_next_one(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    log = open_log(storage)
    with ExitStack() as late:
        late.enter_context(storage.sync_note.around(storage))
        log.synced.let_go()
        following = DirectoryStorage(tmp_path)
        with following.sync_note.around(following):
            late.close()
            assert UNFINISHED_SYNC in following.names()
    assert UNFINISHED_SYNC not in following.names()
