"""Files of every kind are changed in every way: nothing is lost in silence, and a check knows what a start will do.

Each seed makes one change to one file of a directory (`directories`, `damages`). Then it holds:

1. A check changes nothing.
2. What a start says, the check has said. A start that is refused over the metadata changes nothing.
3. If a record that was acknowledged cannot be read any more, or an aborted one would be shown, or a reader gets bytes
   that nobody wrote, the check names the file or its partition.
4. Without a repair a start gives the same records as a repair and then a start.
5. After a repair neither a check nor a start finds anything that a repair could have mended.

`SEEDS=5000 SEED=1` runs so many, from there on; `make test` runs a few.
"""

from __future__ import annotations

import os
import random

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.directory.repair import repair
from ottla.broker.directory.state import Survey
from ottla.broker.directory.survey import survey
from ottla.broker.told import Kind, Told
from ottla.log.names import LOG, SWAP
from sim.disk import SimDisk
from tests.broker.directory.damages import Damage, damage
from tests.broker.directory.directories import CONFIG, Batches, Made, all_readable, contents, made, start, visible
from tests.log.batches import NOW_MS

_FIRST, _COUNT = int(os.environ.get("SEED", "1")), int(os.environ.get("SEEDS", "160"))
#: In so many tests, so that a failure names a few seeds.
_PARTS = 8
_CLOCK = ManualClock(NOW_MS)


def _check(disk: SimDisk) -> Survey:
    before = contents(disk)
    found = survey(disk, CONFIG, _CLOCK, deep=True)
    assert contents(disk) == before, "a check changes nothing"
    return found


def _is_named(told: tuple[Told, ...], hurt: Damage) -> bool:
    """Whether a sentence about a fault leads to the file: by its name, or by its folder."""
    faults = [each for each in told if each.kind.is_fault]
    return any(hurt.name in each.text or (hurt.folder and each.place.startswith(hurt.folder)) for each in faults)


def _hidden(was: Made, tp: TopicPartition, found: Batches) -> tuple[set[int], set[int]]:
    """Offsets of batches that are gone, and of those that nobody wrote."""
    ever = was.ever[tp]
    lost = {offset for offset in was.batches[tp] if offset not in found or found[offset] not in ever[offset]}
    return lost, {offset for offset, data in found.items() if data not in ever.get(offset, ())}


def _judge_start(was: Made, hurt: Damage, checked: Survey, disk: SimDisk) -> dict[TopicPartition, Batches] | None:
    """Rules 2 and 3. What readers get; None when the start is refused."""
    before, told = contents(disk), list[Told]()
    try:
        recovered = start(disk, told)
    except StorageError as fault:
        assert checked.is_refused, fault
        assert _is_named(checked.told, hurt), fault
        # A partition that belongs to another topic, or whose cleaning cannot be finished, is found after others were
        # opened.
        assert contents(disk) == before or hurt.name == "partition.metadata" or hurt.name.endswith(LOG + SWAP)
        assert hurt.folder in str(fault)
        return None
    assert not checked.is_refused
    assert told == list(checked.told[: len(told)])
    named = _is_named(checked.told, hurt)
    assert named or not any(each.kind.is_fault for each in told)
    found = all_readable(recovered)
    for partition in recovered.partitions.all():
        tp = partition.tp
        lost, invented = _hidden(was, tp, found[tp])
        assert named or not lost, f"{tp}: {sorted(lost)} lost in silence"
        # No CRC covers a base offset: who reads a changed one gets the records at another offset.
        assert not invented or any(each.kind is Kind.DAMAGE and each.place == hurt.path for each in checked.told)
        shown = visible(partition.log)
        first = min(was.batches[tp], default=0)
        more = {offset for offset in shown or () if offset >= first} - was.visible[tp]
        assert named or not more, f"{tp}: {sorted(more)} would be shown, and were aborted"
    return found


def _judge_repair(checked: Survey, disk: SimDisk, found: dict[TopicPartition, Batches]) -> None:
    """Rules 4 and 5."""
    repair(disk, CONFIG, _CLOCK, random.Random(1), checked.misfits)
    after = _check(disk)
    assert not [each.text for each in after.told if each.kind.is_mended]
    assert not after.has_repair
    told: list[Told] = []
    assert all_readable(start(disk, told)) == found
    assert not [each.text for each in told if each.kind.is_mended]


def _run(seed: int) -> str | None:
    """One case; the file that was changed."""
    rng = random.Random(seed)
    was = made(rng.randrange(16), stopped=rng.random() < 0.4)
    disk = was.disk.after_kill()
    hurt = damage(was, disk, rng)
    if hurt is None:
        return None
    try:
        checked = _check(disk)
        found = _judge_start(was, hurt, checked, disk.after_kill())
        if found is not None:
            _judge_repair(checked, disk.after_kill(), found)
    except Exception as fault:
        raise AssertionError(f"seed {seed}: {hurt}, stopped in order: {was.was_stopped}: {fault}") from fault
    return hurt.path


@pytest.mark.parametrize("part", range(_PARTS))
def test_whatever_happens_to_one_file_is_told_and_repaired_as_a_start_would(part: int) -> None:
    changed = [_run(seed) for seed in range(_FIRST + part, _FIRST + _COUNT, _PARTS)]
    assert any(changed)


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("number", range(3))
def test_an_untouched_directory_is_sound_and_a_repair_would_do_nothing(number: int, *, stopped: bool) -> None:
    checked = _check(made(number, stopped=stopped).disk.after_kill())
    assert [each.text for each in checked.told] == []
    assert checked.is_sound
    assert not checked.has_repair
    assert checked.was_stopped == stopped
