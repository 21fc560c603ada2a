"""The overlay: work on it looks like work on the disk, and nothing of it is on the disk."""

from __future__ import annotations

import random

import pytest

from ottla.base.errors import StorageError
from ottla.broker.directory.overlay import Action, Change, OverlayDisk
from ottla.log.memory import MemoryStorage
from sim.disk import SimDisk

_NOW_MS = 7


@pytest.fixture
def disk() -> SimDisk:
    """Two folders and an own file."""
    disk = SimDisk()
    disk.own_files().write("own", b"one")
    disk.open_folder("a-0").write("log", b"0123456789")
    disk.open_folder("a-0").write("old", b"old")
    disk.open_folder("b-0").write("log", b"b")
    return disk


def _contents(disk: SimDisk) -> dict[tuple[str, str], bytes]:
    return {each: disk.content(*each) for each in disk.files()}


def test_every_kind_of_change_is_listed_and_none_is_made(disk: SimDisk) -> None:
    before = _contents(disk)
    overlay = OverlayDisk(disk, _NOW_MS)
    folder = overlay.open_folder("a-0")
    file = folder.open("log")
    file.truncate(4)
    assert (file.read(2, 9), file.size_bytes) == (b"23", 4)
    file.append([b"x", memoryview(b"yz")])
    assert (file.read(0, 99), file.read(5, 1), file.size_bytes) == (b"0123xyz", b"y", 7)
    with file.map() as view:
        assert bytes(view) == b"0123xyz"
    folder.delete("old")
    folder.write("new", b"12345")
    overlay.own_files().open("own").append([b"more"])
    overlay.rename("b-0", "c-0")
    overlay.open_folder("d-0")
    assert [each.name for each in overlay.folders()] == ["a-0", "c-0", "d-0"]
    assert list(overlay.changes()) == [
        Change(Action.APPENDED, "own", 3, 7),
        Change(Action.REPLACED, "a-0/log", 10, 7),
        Change(Action.MADE, "a-0/new", 0, 5),
        Change(Action.REMOVED, "a-0/old", 3, 0),
        Change(Action.RENAMED, "b-0", name="c-0"),
        Change(Action.MADE, "d-0"),
    ]
    assert _contents(disk) == before


def test_what_is_written_as_it_was_is_no_change_and_what_is_shorter_is_cut(disk: SimDisk) -> None:
    overlay = OverlayDisk(disk, _NOW_MS)
    overlay.own_files().write("own", b"one")
    file = overlay.open_folder("a-0").open("log")
    file.truncate(0)
    file.append([b"0123"])
    overlay.open_folder("b-0").open("log").truncate(0)
    assert list(overlay.changes()) == [
        Change(Action.CUT, "a-0/log", 10, 4),
        Change(Action.CUT, "b-0/log", 1, 0),
    ]


def test_a_file_that_takes_another_ones_place_is_compared_by_its_bytes(disk: SimDisk) -> None:
    overlay = OverlayDisk(disk, _NOW_MS)
    folder = overlay.open_folder("a-0")
    folder.set_modified_ms("old", 99)
    folder.rename("old", "log")
    assert (folder.read("log"), folder.modified_ms("log")) == (b"old", 99)
    assert list(overlay.changes()) == [
        Change(Action.REPLACED, "a-0/log", 10, 3),
        Change(Action.REMOVED, "a-0/old", 3, 0),
    ]


def test_folders_go_only_when_they_are_empty(disk: SimDisk) -> None:
    overlay = OverlayDisk(disk, _NOW_MS)
    with pytest.raises(StorageError, match="not empty"):
        overlay.remove("b-0")
    overlay.delete("b-0", "log")
    overlay.remove("b-0")
    assert overlay.entries("b-0") is None
    assert list(overlay.changes()) == [Change(Action.REMOVED, "b-0")]
    with pytest.raises(StorageError, match="No such file"):
        overlay.rename("b-0", "x")


def test_a_large_file_is_not_kept_in_memory_and_reads_as_one() -> None:
    below = SimDisk()
    below.open_folder("a-0").write("log", b"head")
    file = OverlayDisk(below, _NOW_MS).open_folder("a-0").open("log")
    blocks = [bytes((number,)) * 400_000 for number in range(5)]
    for block in blocks:
        file.append([block])
    whole = b"head" + b"".join(blocks)
    assert file.size_bytes == len(whole)
    assert file.read(399_990, 30) == whole[399_990:400_020]
    with file.map() as view:
        assert bytes(view) == whole


@pytest.mark.parametrize("seed", range(20))
def test_it_reads_as_a_storage_in_memory_does(seed: int) -> None:
    """The same calls to both, and the same answers."""
    rng = random.Random(seed)
    below = SimDisk()
    names = ("a", "b", "c")
    twin = MemoryStorage()
    for name in names[:2]:
        content = rng.randbytes(rng.randrange(20))
        below.open_folder("t-0").write(name, content)
        twin.write(name, content)
    mine = OverlayDisk(below, _NOW_MS).open_folder("t-0")
    for _ in range(60):
        name = rng.choice(names)
        match rng.randrange(5):
            case 0:
                data = rng.randbytes(rng.randrange(9))
                for each in (mine, twin):
                    each.open(name, create=True).append([data])
            case 1 if name in twin.files:
                size_bytes = rng.randrange(twin.files[name].size_bytes + 1)
                for each in (mine, twin):
                    each.open(name).truncate(size_bytes)
            case 2:
                for each in (mine, twin):
                    each.delete(name)
            case 3 if name in twin.files:
                to = rng.choice([other for other in names if other != name])
                for each in (mine, twin):
                    each.rename(name, to)
            case _:
                data = b"w" * rng.randrange(4)
                for each in (mine, twin):
                    each.write(name, data)
        assert mine.names() == twin.names()
        assert [mine.read(each) for each in names] == [twin.read(each) for each in names]
