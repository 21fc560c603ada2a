"""A stop brings many logs to the device in several threads, with few syncs each, and keeps what it promises."""

import errno
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.runtime.closing import do_all
from ottla.log.checkpoint import CLEAN_SHUTDOWN_MARKER, RECOVERY_POINT_CHECKPOINT, decode_offsets
from ottla.log.names import UNFINISHED_SYNC
from ottla.log.partition import PartitionLog
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, encode_batch
from sim import settings
from tests.broker.crash_points import CrashPoints

_THREADS = "num.recovery.threads.per.data.dir"
#: For a thread that never comes.
_PATIENCE_S = 60


async def _written(data_dir: Path, partitions: int, *, threads: int = 4) -> AsyncBroker:
    """A broker with a topic, and a record in each of its partitions."""
    broker = await AsyncBroker({_THREADS: threads}, data_dir=data_dir).start()
    await broker.node.topics.create("t", partitions, {})
    for number in range(partitions):
        batch = encode_batch([Record(0, 1, None, b"%d" % number, ())])
        appended = broker.node.partitions.append(TopicPartition("t", number), batch, origin=Origin.COORDINATOR)
        assert appended.error is ErrorCode.NONE
    return broker


def _logs(broker: AsyncBroker) -> dict[str, PartitionLog]:
    return {str(each.tp): each.log for each in broker.node.partitions.all()}


async def _has_all(data_dir: Path, partitions: int) -> None:
    async with AsyncBroker(data_dir=data_dir) as broker:
        for number in range(partitions):
            found = broker.node.partitions.find("t", number)
            assert found is not None
            assert [b"%d" % number in piece.read() for piece in found.log.read(0, 1_000).slices] == [True]


@contextmanager
def _synced(heard: Callable[[Path], None]) -> Iterator[None]:
    """`heard` is told of each file and directory that is about to be synced, and may refuse it."""
    data, whole = os.fdatasync, os.fsync

    def noted(sync: Callable[[int], None]) -> Callable[[int], None]:
        def synced(descriptor: int) -> None:
            heard(Path(f"/proc/self/fd/{descriptor}").readlink())
            sync(descriptor)

        return synced

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", noted(data))
        patch.setattr(os, "fsync", noted(whole))
        yield


async def _counted(data_dir: Path, partitions: int) -> Counter[str]:
    """How often a stop syncs files of the partitions, their folders, and the data directory."""
    counts: Counter[str] = Counter()

    def count(path: Path) -> None:
        if path.parent.name.startswith("t-"):
            counts[path.suffix or path.name] += 1
        elif path == data_dir or path.name.startswith("t-"):
            counts["directory" if path == data_dir else "folder"] += 1

    broker = await _written(data_dir, partitions)
    with _synced(count):
        await broker.stop()
    return counts


async def test_a_stop_syncs_each_file_of_a_new_log_once_and_their_directory_as_often_as_for_one(tmp_path: Path) -> None:
    few, many = await _counted(tmp_path / "few", 1), await _counted(tmp_path / "many", 7)
    each = (".log", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "folder")
    assert few == {**dict.fromkeys(each, 1), "directory": few["directory"]}
    assert many == {**dict.fromkeys(each, 7), "directory": few["directory"]}


async def test_a_stop_has_as_many_logs_in_hand_as_there_are_threads(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def wait(path: Path) -> None:
        if path.parent.name.startswith("t-") and path.suffix == ".log":
            together.wait(_PATIENCE_S)

    broker = await _written(tmp_path, 8)
    with _synced(wait):
        await broker.stop()
    assert (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()
    await _has_all(tmp_path, 8)


async def test_a_stop_with_one_thread_goes_in_order_and_begins_no_other(tmp_path: Path) -> None:
    order: list[tuple[str, int]] = []

    def note(path: Path) -> None:
        if path.suffix == ".log" and path.parent.name.startswith("t-"):
            order.append((path.parent.name, threading.get_ident()))

    broker = await _written(tmp_path, 5, threads=1)
    with _synced(note):
        await broker.stop()
    assert order == [(f"t-{number}", threading.get_ident()) for number in range(5)]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("lasting", [True, False])
async def test_a_refused_sync_keeps_no_other_log_from_the_device_and_there_is_no_mark(
    tmp_path: Path, threads: int, *, lasting: bool
) -> None:
    refused: list[Path] = []

    def refuse(path: Path) -> None:
        if path.parent.name == "t-2" and path.suffix == ".log" and (lasting or not refused):
            refused.append(path)
            raise OSError(errno.EIO, "Input/output error")

    broker = await _written(tmp_path, 6, threads=threads)
    logs = _logs(broker)
    with _synced(refuse), pytest.raises(StorageError, match=r"without the mark of a clean stop.*t-2.*Input/output"):
        await broker.stop()
    points = decode_offsets((tmp_path / RECOVERY_POINT_CHECKPOINT).read_bytes())
    assert {number: points[TopicPartition("t", number)] for number in range(6)} == {0: 1, 1: 1, 2: 0, 3: 1, 4: 1, 5: 1}
    assert len(refused) == (2 if lasting else 1), "it is tried once more"
    assert {name: each.flushed_offset for name, each in logs.items() if each.flushed_offset != 1} == (
        {"t-2": 0} if lasting else {}
    )
    closed = {name for name, each in logs.items() if _is_closed(each)}
    assert closed >= logs.keys() - ({"t-2"} if lasting else set())
    assert not (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()
    assert (tmp_path / "t-2" / UNFINISHED_SYNC).exists(), "the next start writes it again"
    await _has_all(tmp_path, 6)


def _is_closed(log: PartitionLog) -> bool:
    try:
        log.append(encode_batch([Record(0, 1, None, b"late", ())]), now_ms=1, origin=Origin.COORDINATOR)
    except StorageError:
        return True
    return False


async def test_a_broker_that_is_killed_at_any_call_of_its_stop_leaves_every_record(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    broker = await _written(data_dir, 5)
    points = CrashPoints(data_dir, tmp_path / "copies", None)
    with points.taken():
        await broker.stop()
    assert len(points.points) > 25
    for point in points.points:
        await _has_all(point.data_dir, 5)


def test_everything_is_done_whatever_fails_and_each_fault_has_its_number() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        if number % 10 == 3:
            raise StorageError(f"{number} is refused")
        if number == 50:
            raise KeyError("of our own")

    for threads in (1, 3, 1_000):
        done.clear()
        faults = do_all([lambda number=number: work(number) for number in range(100)], threads)  # type: ignore[misc]
        assert sorted(done) == list(range(100))
        assert list(faults) == sorted([*range(3, 100, 10), 50])
        assert str(faults[13]) == "13 is refused"
        assert str(faults[50]) == "KeyError: 'of our own'"
    assert do_all([], 4) == {}


def test_where_the_system_has_no_thread_left_the_callers_does_it() -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        assert do_all([lambda number=number: done.append(number) for number in range(9)], 4) == {}  # type: ignore[misc]
    assert done == list(range(9))


def test_a_simulated_disk_is_closed_in_one_thread() -> None:
    assert settings.of_the_broker(random.Random(0), "b1", 9092)[_THREADS] == "1"
