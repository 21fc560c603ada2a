"""Behind an end that was not in order each partition's leader is elected anew, so that clients learn of a log that has
lost its end (KIP-320): no two records with one offset have one leader epoch.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn

import pytest

from ottla import AsyncProducer
from ottla.base.clock import ManualClock
from ottla.base.errors import StorageError
from ottla.broker.metadata.names import METADATA_FOLDER
from ottla.broker.metadata.records import PartitionChangeRecord, decode_record
from ottla.broker.recover import Recovered
from ottla.broker.runtime.changes import Changes
from ottla.broker.runtime.manifest import MANIFEST
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.slices import Slices
from ottla.log.checkpoint import CLEAN_SHUTDOWN_MARKER, RECOVERY_POINT_CHECKPOINT
from ottla.log.partition import PartitionLog
from ottla.log.replay import batches
from ottla.log.results import EpochEndOffset
from ottla.testing import AsyncBroker
from ottla.wire.errors import ErrorCode
from ottla.wire.records import decode_batch
from ottla.wire.special_timestamp import SpecialTimestamp
from sim.disk import SimDisk
from sim.steps import Fuse, Place, ProcessDied
from tests.broker.directory.directories import readable
from tests.broker.directory.directories import start as recovered_on
from tests.broker.metadata_changes import make_topic, write
from tests.log.batches import NOW_MS, batch

_ID: Final = b"i" * 16
_MARK: Final = "acknowledged-end-offset"


def _start(disk: SimDisk) -> Recovered:
    return recovered_on(disk, [])


def _made(partitions: int = 1, **configs: str) -> tuple[SimDisk, Recovered]:
    """A new directory, with a topic `t`."""
    disk = SimDisk()
    recovered = _start(disk)
    recovered.partitions.open_topic(make_topic(recovered.metadata, "t", _ID, partitions, configs), configs)
    return disk, recovered


def _part(recovered: Recovered, number: int = 0) -> Partition:
    partition = recovered.partitions.find("t", number)
    assert partition is not None
    return partition


def _write(partition: Partition, count: int = 1, value: bytes = b"v") -> None:
    for _ in range(count):
        epoch = partition.leader_epoch
        assert partition.log.append(batch(value=value), now_ms=NOW_MS, leader_epoch=epoch).error is ErrorCode.NONE


def _epochs(recovered: Recovered) -> list[int]:
    """The epochs of `t`'s leaders; the metadata and the partitions agree on them."""
    said = [each.leader_epoch for each in recovered.metadata.image.topics["t"].partitions]
    assert said == [_part(recovered, number).leader_epoch for number in range(len(said))]
    return said


def _changes(recovered: Recovered) -> list[list[object]]:
    """The records of each batch of the metadata log."""
    log = recovered.metadata.log
    return [[decode_record(each.value or b"") for each in decode_batch(content)] for _, content in batches(log)]


def test_after_a_kill_one_batch_elects_every_leader_anew() -> None:
    disk, recovered = _made(3)
    _write(_part(recovered), 5)
    again = _start(disk.after_kill())
    assert _epochs(again) == [1, 1, 1]
    assert _changes(again)[-1] == [PartitionChangeRecord(number, _ID, leader=1) for number in range(3)]
    log = _part(again).log
    assert log.end_offset_for_epoch(0) == EpochEndOffset(0, 5)
    assert log.end_offset_for_epoch(1) == EpochEndOffset(1, 5)
    assert log.end_offset_for_epoch(2) == EpochEndOffset(-1, -1)
    latest = log.offset_for_timestamp(SpecialTimestamp.LATEST)
    assert latest is not None
    assert (latest.offset, latest.leader_epoch) == (5, 1), "as Apache Kafka says it before there is a record"
    _write(_part(again), 2)
    assert log.epochs.entries == ((0, 0), (1, 5))
    assert log.end_offset_for_epoch(1) == EpochEndOffset(1, 7)


def test_after_a_stop_in_order_nothing_is_written() -> None:
    disk, recovered = _made()
    _write(_part(recovered), 5)
    recovered.close()
    end_offset = recovered.metadata.log.end_offset
    again = _start(disk)
    assert _epochs(again) == [0]
    assert again.metadata.log.end_offset == end_offset


def test_a_stop_behind_an_election_is_in_order() -> None:
    disk, _ = _made()
    disk = disk.after_kill()
    _start(disk).close()
    assert _epochs(_start(disk)) == [1]


@pytest.mark.parametrize(
    ("file", "content"),
    [(CLEAN_SHUTDOWN_MARKER, b"?"), (RECOVERY_POINT_CHECKPOINT, b"?"), (MANIFEST, b"?"), (MANIFEST, None)],
)
def test_a_stop_that_nothing_proves_counts_as_none(file: str, content: bytes | None) -> None:
    disk, recovered = _made()
    _write(_part(recovered), 5)
    recovered.close()
    disk.change("", file, content)
    assert _epochs(_start(disk)) == [1]


def test_a_log_that_is_cut_behind_a_stop_has_its_leader_elected_anew() -> None:
    """Nobody knows what was there; records that are missing below the recovery point leave a hole, and are told so."""
    disk, recovered = _made(3)
    for number in range(3):
        _write(_part(recovered, number), 5)
    recovered.close()
    name = f"{0:020}.log"
    disk.change("t-1", name, disk.content("t-1", name) + batch()[:50])
    disk.change("t-2", name, disk.content("t-2", name)[:-10])
    recovered = _start(disk)
    assert _part(recovered, 2).log.findings.damaged == ((4, 5),)
    assert _epochs(recovered) == [0, 1, 0]


def test_epochs_that_the_metadata_log_has_lost_are_not_used_again() -> None:
    disk, recovered = _made(2)
    _write(_part(recovered, 0))
    older = disk.after_kill()
    for _ in range(3):
        disk = disk.after_kill()
        recovered = _start(disk)
        _write(_part(recovered, 1))
    assert _epochs(recovered) == [3, 3]
    recovered.close()
    for folder, name in disk.files():
        if folder == METADATA_FOLDER:
            disk.change(folder, name, None)
    for folder, name in older.files():
        if folder == METADATA_FOLDER and name != _MARK:
            disk.change(folder, name, older.content(folder, name))
    recovered = _start(disk)
    assert _epochs(recovered) == [1, 4], "the first has no record of a later epoch than 0"
    assert _part(recovered, 1).log.epochs.entries == ((1, 0), (2, 1), (3, 2))
    _write(_part(recovered, 1))
    assert _part(recovered, 1).log.epochs.entries[-1] == (4, 3)
    assert _epochs(_start(disk.after_kill())) == [2, 5]


def test_a_changed_epoch_is_not_taken_for_one_that_was_lost() -> None:
    disk, recovered = _made()
    _write(_part(recovered), 3)
    disk = disk.after_kill()
    disk.change(METADATA_FOLDER, _MARK, None)
    disk.change("t-0", "leader-epoch-checkpoint", b"0\n1\n16777216 0\n")
    assert _epochs(_start(disk)) == [1]


class _Refusing(SimDisk):
    """A device that refuses to sync the metadata log when it has more than so many bytes."""

    most_bytes: int | None = None

    def refuses(self, action: str, name: str) -> bool:
        sizes = self.sizes(METADATA_FOLDER) if self.most_bytes is not None and action == "sync" else {}
        return super().refuses(action, name) or sizes.get(f"{0:020}.log", 0) > (self.most_bytes or 0)


def _killed_and(disk: SimDisk) -> _Refusing:
    """The same directory on a disk that may refuse."""
    left = _Refusing()
    for folder, name in disk.files():
        if folder:
            left.open_folder(folder)
        left.change(folder, name, disk.content(folder, name))
    return left


def _full() -> SimDisk:
    disk, recovered = _made(2)
    _write(_part(recovered), 5)
    disk = disk.after_kill()
    disk.full = True
    return disk


def _refusing(**configs: str) -> SimDisk:
    disk, recovered = _made(2, **configs)
    _write(_part(recovered), 5)
    left = _killed_and(disk)
    left.most_bytes = left.sizes(METADATA_FOLDER)[f"{0:020}.log"]
    return left


def _take_again(disk: SimDisk) -> None:
    disk.full = False
    if isinstance(disk, _Refusing):
        disk.most_bytes = None


_DISKS: Final = [_full, _refusing]


@pytest.mark.parametrize("refusing", _DISKS)
def test_before_the_elections_are_on_the_device_nothing_is_appended(refusing: Callable[[], SimDisk]) -> None:
    disk = refusing()
    recovered = _start(disk)
    assert _epochs(recovered) == [0, 0], "clients are told of no epoch that a loss of power could take"
    assert len(readable(_part(recovered).log)) == 5
    with pytest.raises(StorageError, match="the epoch that the leader has next"):
        _write(_part(recovered))
    with pytest.raises(StorageError, match="the epoch that the leader has next"):
        _part(recovered).log.append_control(
            producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=NOW_MS
        )
    _take_again(disk)
    recovered.close()
    assert CLEAN_SHUTDOWN_MARKER not in disk.own_files().names()
    assert set(_epochs(_start(disk))) <= {1, 2}


def test_what_is_refused_while_an_election_is_owed_leaves_no_empty_segment() -> None:
    """Behind the next kill it would tell of records that are gone."""
    disk = _refusing(**{"internal.segment.bytes": "100"})
    with pytest.raises(StorageError, match="the epoch that the leader has next"):
        _write(_part(_start(disk)))
    assert _part(_start(disk.after_kill())).log.findings.losses == ()


async def test_a_stop_before_elections_are_on_the_device_lets_nothing_be_appended() -> None:
    disk = _refusing()
    recovered = _start(disk)

    async def stop(_: float) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await recovered.elections.attempt(Changes(recovered.metadata, Slices(ManualClock()), stop))
    with pytest.raises(StorageError, match="the epoch that the leader has next"):
        _write(_part(recovered))
    assert recovered.elections.are_owed


@pytest.mark.parametrize("refusing", _DISKS)
async def test_elections_are_held_as_soon_as_the_disk_takes_them(refusing: Callable[[], SimDisk]) -> None:
    disk = refusing()
    recovered = _start(disk)
    changes, slices = Changes(recovered.metadata, Slices(ManualClock()), lambda _: pause(0.0)), 0

    async def pause(_: float) -> None:
        nonlocal slices
        slices += 1
        assert _epochs(recovered) == [0, 0]
        if slices == 2:
            _take_again(disk)

    elections = recovered.elections
    await elections.make_up(partial(elections.attempt, changes), pause)
    assert slices == 2
    assert _epochs(recovered) == [1, 1]
    _write(_part(recovered))
    assert _part(recovered).log.epochs.entries == ((0, 0), (1, 5))
    recovered.close()
    assert _epochs(_start(disk)) == [1, 1]


async def test_a_topic_that_goes_before_the_disk_takes_its_election_needs_none() -> None:
    disk = _full()
    recovered = _start(disk)
    disk.full = False
    metadata, topic = recovered.metadata, recovered.metadata.image.topics["t"]
    write(metadata, metadata.removal_records([topic]))
    assert list(recovered.partitions.take_out(topic)) == ["t-0", "t-1"]
    await recovered.elections.attempt(Changes(recovered.metadata, Slices(ManualClock())))
    assert not recovered.elections.are_owed


class _Reader:
    """Notes each record that a client could read, and what the log says of it later."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], bytes] = {}
        self.told = 0

    def read(self, log: PartitionLog) -> None:
        """Each record that was ever read is there, or OffsetForLeaderEpoch tells that it is not."""
        now = {(header.base_offset, header.partition_leader_epoch): bytes(data) for header, data in batches(log)}
        for (offset, epoch), data in self._seen.items():
            if now.get((offset, epoch)) != data:
                assert log.end_offset_for_epoch(epoch).end_offset <= offset, f"{offset} of epoch {epoch} is another"
                self.told += 1
        self._seen |= now


def _die(fuse: Fuse) -> NoReturn:
    raise ProcessDied


def _end(disk: SimDisk, recovered: Recovered, rng: random.Random) -> SimDisk:
    """How a process may end, perhaps once more in the middle of the next start."""
    if rng.random() < 0.2:
        recovered.close()
        return disk
    left = disk.after_power_loss(rng) if rng.random() < 0.7 else disk.after_kill()
    if rng.random() < 0.5:
        left.fuse = Fuse(rng.randint(1, 12), rng.choice(list(Place)), rng.random(), "", _die)
        with suppress(ProcessDied):
            _start(left)
        left.fuse = None
        left = left.after_power_loss(rng) if rng.random() < 0.7 else left.after_kill()
    return left


def test_no_two_records_have_one_offset_and_one_epoch_whatever_a_loss_of_power_leaves() -> None:
    told = 0
    for seed in range(150):
        rng, reader = random.Random(seed), _Reader()
        disk, recovered = _made()
        for life in range(8):
            for number in range(rng.randint(0, 5)):
                _write(_part(recovered), value=b"%d %d" % (life, number))
                if rng.random() < 0.1:
                    _part(recovered).log.flush()
            reader.read(_part(recovered).log)
            disk = _end(disk, recovered, rng)
            recovered = _start(disk)
            reader.read(_part(recovered).log)
        told += reader.told
    assert told > 500


async def test_a_coordinator_leads_in_the_next_epoch_too() -> None:
    async with AsyncBroker() as broker:
        await broker.node.topics.create("t", 1, {})
        for epoch in (0, 1):
            async with AsyncProducer(
                {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"}
            ) as producer:
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send("t", b"x")
                await producer.commit_transaction()
            part = broker.node.partitions.find("t", 0)
            assert part is not None
            assert [each.coordinator_epoch for each in part.log.producers.active()] == [epoch]
            await broker.stop()
            (broker.data_dir / CLEAN_SHUTDOWN_MARKER).unlink()
            await broker.start()
