"""A process that dies at a call that changes its directory: what the next one finds, and what it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from sim.disk import SimDisk
from sim.steps import Fuse, Place, ProcessDied


def _write(disk: SimDisk) -> None:
    folder = disk.open_folder("t-0")
    file = folder.open("log", create=True)
    file.append([b"abcd"])
    file.sync()
    folder.write("snapshot", b"1")
    folder.rename("snapshot", "snapshot.deleted")
    folder.delete("snapshot.deleted")


def _left(steps: int, place: Place, about: str = "", work: Callable[[SimDisk], None] = _write) -> dict[str, bytes]:
    """What is there when the process has died, by the file's name."""
    disk = SimDisk()
    found: dict[str, bytes] = {}

    def die(fuse: Fuse) -> NoReturn:
        disk.fuse = None
        found.update({name: disk.content(folder, name) for folder, name in disk.files()})
        raise ProcessDied(str(fuse))

    disk.fuse = Fuse(steps, place, 0.5, about, die)
    with pytest.raises(ProcessDied):
        work(disk)
    return found


def test_each_changing_call_is_a_step_and_what_follows_is_not_done() -> None:
    before = [_left(steps, Place.BEFORE) for steps in range(1, 10)]
    names = [tuple(sorted(each)) for each in before]
    assert names[:4] == [(), (), ("log",), ("log",)]
    assert [each.get("log") for each in before[1:4]] == [None, b"", b"abcd"]
    assert names[-1] == ("log", "snapshot.deleted")
    assert "snapshot" in before[-2] or "snapshot" in before[-3]


def test_an_append_may_be_there_in_part_or_whole() -> None:
    assert _left(1, Place.WITHIN, "log")["log"] == b""  # it is being opened
    assert _left(2, Place.WITHIN, "log")["log"] == b"ab"
    assert _left(2, Place.BEHIND, "log")["log"] == b"abcd"


def test_behind_a_call_it_is_done() -> None:
    assert _left(1, Place.BEHIND, "snapshot")["snapshot"] == b"1"
    assert "snapshot.deleted" in _left(2, Place.BEHIND, "snapshot")
    assert tuple(_left(3, Place.BEHIND, "snapshot")) == ("log",)


def test_no_code_of_the_process_takes_its_death_for_a_fault() -> None:
    def stubborn(disk: SimDisk) -> None:
        try:
            _write(disk)
        except Exception:  # noqa: BLE001 - what it must not catch
            pytest.fail("it lives")

    assert _left(3, Place.BEFORE, work=stubborn) == {"log": b""}


def test_a_file_that_is_there_is_opened_without_a_change() -> None:
    def twice(disk: SimDisk) -> None:
        folder = disk.open_folder("t-0")
        folder.open("log", create=True)
        folder.open("log", create=True).append([b"x"])

    assert _left(2, Place.BEFORE, "log", twice) == {"log": b""}
