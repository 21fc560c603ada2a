"""The simulated disk: what the next process finds."""

from __future__ import annotations

import random

import pytest

from ottla.base.errors import StorageError
from sim.disk import SimDisk


def _after_losses(disk: SimDisk) -> list[SimDisk]:
    return [disk.after_power_loss(random.Random(seed)) for seed in range(50)]


def test_after_kill_9_everything_that_was_written_is_there() -> None:
    disk = SimDisk()
    disk.own_files().write("own", b"1", sync=False)
    disk.open_folder("t-0").open("log", create=True).append([b"abc"])
    disk.rename("t-0", "t-1")
    left = disk.after_kill()
    assert left.own_files().read("own") == b"1"
    assert [folder.name for folder in left.folders()] == ["t-1"]
    assert left.open_folder("t-1").read("log") == b"abc"


def test_what_is_synced_survives_every_loss_of_power() -> None:
    disk = SimDisk()
    folder = disk.open_folder("t-0")
    file = folder.open("log", create=True)
    file.append([b"abc"])
    file.sync()
    folder.sync_names()
    file.append([b"def"])
    found = {left.open_folder("t-0").read("log") for left in _after_losses(disk)}
    assert found >= {b"abc", b"abcdef"}
    assert all(each is not None and each.startswith(b"abc") for each in found)


def test_what_is_not_synced_may_go_or_stay_and_names_change_in_their_order() -> None:
    disk = SimDisk()
    disk.open_folder("a")
    disk.sync_names()
    disk.open_folder("b")
    disk.rename("a", "c")
    names = {tuple(folder.name for folder in left.folders()) for left in _after_losses(disk)}
    assert names == {("a",), ("a", "b"), ("b", "c")}


def test_a_loss_of_power_also_undoes_what_a_killed_process_had_not_synced() -> None:
    disk = SimDisk()
    disk.open_folder("a")
    assert {len(left.folders()) for left in _after_losses(disk.after_kill())} == {0, 1}


def test_a_full_disk_takes_no_bytes_and_a_broken_one_refuses() -> None:
    disk = SimDisk()
    file = disk.open_folder("a").open("log", create=True)
    disk.full = True
    with pytest.raises(StorageError):
        file.append([b"abc"])
    with pytest.raises(StorageError):
        disk.own_files().write("own", b"1")
    disk.full = False
    file.append([b"abc"])
    disk.broken = 1.0
    with pytest.raises(StorageError):
        file.read(0, 3)
