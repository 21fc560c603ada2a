"""Damaged files in a simulated world: what is drawn, what counts as explained."""

from __future__ import annotations

import logging
import random
from collections import Counter

import pytest

from ottla.base.types import TopicPartition
from ottla.log.checkpoint import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, encode_offsets
from sim.damage import Damage, do_damage, listening, sound_entries
from sim.disk import SimDisk
from sim.running import one
from sim.world import Kind
from tests.log.batches import batch

_LOG = f"{0:020}.log"


def _content(count: int) -> bytes:
    return b"".join(offset.to_bytes(8) + batch()[8:] for offset in range(count))


def _disk() -> SimDisk:
    disk = SimDisk()
    disk.own_files().write("meta.properties", b"x" * 20)
    disk.open_folder("t-0").write(_LOG, _content(3))
    return disk


def test_a_changed_file_is_on_the_device() -> None:
    disk = _disk()
    assert disk.files() == [("", "meta.properties"), ("t-0", _LOG)]
    disk.change("", "meta.properties", b"y")
    disk.change("t-0", _LOG, None)
    for left in (disk.after_kill(), disk.after_power_loss(random.Random(1))):
        assert left.own_files().read("meta.properties") == b"y"
        assert left.own_files().names() == ["meta.properties"]
        assert left.entries("t-0") in ([], None)


def test_every_damage_is_drawn_and_each_can_be_undone() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(100):
        disk = _disk()
        damage = do_damage(disk, random.Random(seed), clean=True)
        if damage is not None:
            drawn[damage.how] += 1
            there = (damage.folder, damage.name) in disk.files()
            assert not there or disk.content(damage.folder, damage.name) != damage.before
            disk.change(damage.folder, damage.name, damage.before)
        assert disk.content("t-0", _LOG) == _content(3)
    assert set(drawn) == {"removed", "emptied", "cut", "flipped"}


def test_whole_batches_are_found_around_a_damaged_one() -> None:
    content = bytearray(_content(3))
    size = len(content) // 3
    content[size + 40] ^= 1
    assert [entry.base_offset for _, entry in sound_entries(bytes(content))] == [0, 2]
    damage = Damage("t-0", _LOG, "flipped", _content(3), (size + 40,))
    assert [damage.hurts("t-0", offset) for offset in range(3)] == [False, True, False]
    assert not damage.hurts("t-1", 1)
    assert not damage._replace(flipped=(size + 12, size + 15)).hurts("t-0", 1), "its leader epoch, which no CRC covers"
    assert damage._replace(flipped=(size + 11, size + 16)).hurts("t-0", 1)


def test_a_refusal_must_name_the_file_or_its_partition() -> None:
    own, log = Damage("", "meta.properties", "cut", b""), Damage("t-0", _LOG, "cut", b"")
    assert own.is_named_in("/disk/meta.properties is damaged")
    assert log.is_named_in("t-0 cannot be opened")
    assert not own.is_named_in("something is wrong")
    assert not log.is_named_in("something is wrong")


def test_the_directorys_own_files_must_be_named_whatever_they_cost() -> None:
    assert Damage("", "meta.properties", "flipped", b"x").must_be_told
    assert Damage("", "ottla-manifest", "removed", b"x").must_be_told
    assert not Damage("", ".kafka_cleanshutdown", "removed", b"x").must_be_told
    assert not Damage("t-0", "leader-epoch-checkpoint", "removed", b"x").must_be_told


@pytest.mark.usefixtures("quiet")
def test_the_brokers_log_is_heard_although_logging_is_disabled() -> None:
    with listening() as heard:
        logging.getLogger("ottla.broker.runtime").warning("%s: gone", "t-0")
        logging.getLogger("ottla.client").warning("not this")
        try:
            raise ValueError("x")
        except ValueError:
            logging.getLogger("ottla.broker").exception("has failed")
    assert heard.lines == ["t-0: gone", "has failed"]
    assert heard.tracebacks == ["has failed: ValueError('x')"]
    assert logging.root.manager.disable == logging.ERROR


@pytest.mark.parametrize("seed", [183, 228, 292, 1360, 5081, 900100, 784124881])
def test_worlds_that_have_found_something(seed: int) -> None:
    """Producer ids given twice behind a metadata log that lost its end; sound batches cut behind a changed header; a
    changed index entry that led a reader to bytes that are no batch, for ever; one that kept a start busy for ever."""
    assert one(seed, Kind.BROKER_DAMAGE).names == ()


def test_cuts_between_batches_are_drawn_where_a_start_finds_them() -> None:
    """After a clean stop everywhere; after kill -9 below the recovery point, and in older files."""

    def cuts(recovery_point: int, name: str = _LOG, *, clean: bool) -> set[int]:
        found = set()
        for seed in range(400):
            disk = SimDisk()
            disk.own_files().write(RECOVERY_POINT_CHECKPOINT, encode_offsets({TopicPartition("t", 0): recovery_point}))
            disk.open_folder("t-0").write(_LOG, _content(4))
            disk.open_folder("t-0").write(name, _content(4))
            damage = do_damage(disk, random.Random(seed), clean=clean)
            if damage is not None and damage.name == _LOG and damage.how == "cut":
                kept = len(disk.content("t-0", _LOG)) * 4
                found |= {kept // len(_content(4))} if kept % len(_content(4)) == 0 else set()
        return found

    assert cuts(0, clean=True) == {1, 2, 3}
    assert cuts(0, clean=False) == set()
    assert cuts(3, clean=False) == {1, 2}
    assert cuts(0, f"{4:020}.log", clean=False) == {1, 2, 3}


def test_a_log_file_is_emptied_where_a_start_can_tell_it_from_one_that_retention_has_made() -> None:
    """broker-damage 530000098 and 4400019749: all before it was deleted, and nothing said that it was not empty."""

    def is_drawn(base_offset: int, recovery_point: int, *others: int, clean: bool = False, start: int = 0) -> bool:
        name = f"{base_offset:020}.log"
        for seed in range(400):
            disk = SimDisk()
            disk.own_files().write(RECOVERY_POINT_CHECKPOINT, encode_offsets({TopicPartition("t", 0): recovery_point}))
            disk.own_files().write(LOG_START_OFFSET_CHECKPOINT, encode_offsets({TopicPartition("t", 0): start}))
            for base in (base_offset, *others):
                disk.open_folder("t-0").write(f"{base:020}.log", _content(4))
            damage = do_damage(disk, random.Random(seed), clean=clean)
            if damage is not None and (damage.name, damage.how) == (name, "emptied"):
                return True
        return False

    assert not is_drawn(4, 4)
    assert not is_drawn(4, 0, start=4), "no more than the start is on the device"
    assert is_drawn(4, 3)
    assert is_drawn(4, 5)
    assert is_drawn(4, 4, 0)
    assert is_drawn(4, 4, clean=True)
    assert is_drawn(0, 0)


def test_the_base_offset_of_a_last_batch_is_changed_where_it_can_be_one_only() -> None:
    """Beside a hole, which an earlier start has told of, another offset is as good: no start finds the change."""

    def is_drawn(recovery_point: int, last: int = 1) -> bool:
        content, size = b"".join(offset.to_bytes(8) + batch()[8:] for offset in (0, last)), len(batch())
        for seed in range(400):
            disk = SimDisk()
            disk.own_files().write(RECOVERY_POINT_CHECKPOINT, encode_offsets({TopicPartition("t", 0): recovery_point}))
            disk.open_folder("t-0").write(_LOG, content)
            damage = do_damage(disk, random.Random(seed), clean=True)
            if damage is not None and any(size <= at < size + 8 for at in damage.flipped):
                return True
        return False

    assert is_drawn(2)
    assert is_drawn(0)
    assert not is_drawn(3)
    assert not is_drawn(3, last=2)
