"""One change of one file between two starts, drawn from a seed: what disks, copies and people do to files."""

from __future__ import annotations

import random
from typing import NamedTuple

from ottla.log.checkpoint import CLEAN_SHUTDOWN_MARKER
from sim.disk import SimDisk
from tests.broker.directory.directories import Made

WAYS = ("flipped", "cut", "extended", "removed", "emptied", "zeroed", "swapped", "old copy")


class Damage(NamedTuple):
    """What was done. `folder` is "" for the directory's own files."""

    folder: str
    name: str
    how: str
    before: bytes
    after: bytes | None

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}" if self.folder else self.name

    def __str__(self) -> str:
        return f"{self.path} {self.how}"


def damage(made: Made, disk: SimDisk, rng: random.Random) -> Damage | None:
    """Change one file of `disk`; None when the draw changes nothing."""
    files = [each for each in disk.files() if each[1] not in (CLEAN_SHUTDOWN_MARKER, ".lock")]
    suffix = rng.choice(sorted({name[20:] if name[:20].isdigit() else name for _, name in files}))
    folder, name = rng.choice(
        [each for each in files if (each[1][20:] if each[1][:20].isdigit() else each[1]) == suffix]
    )
    before = disk.content(folder, name)
    how = rng.choice(WAYS)
    after = _changed(made, disk, (folder, name), how, rng)
    if after == before:
        return None
    disk.change(folder, name, after)
    return Damage(folder, name, how, before, after)


def _changed(made: Made, disk: SimDisk, place: tuple[str, str], how: str, rng: random.Random) -> bytes | None:
    folder, name = place
    before = disk.content(folder, name)
    match how:
        case "flipped" if before:
            changed = bytearray(before)
            for _ in range(rng.choice((1, 1, 3))):
                changed[rng.randrange(len(before))] ^= rng.randrange(1, 256)
            return bytes(changed)
        case "cut" if before:
            return before[: rng.randrange(len(before))]
        case "extended":
            more = (rng.randbytes(rng.randrange(1, 90)), bytes(rng.randrange(1, 90)), before[: rng.randrange(1, 90)])
            return before + rng.choice(more)
        case "removed":
            return None
        case "emptied":
            return b""
        case "zeroed" if before:
            first = rng.randrange(len(before))
            last = min(len(before), first + rng.randrange(1, 64))
            return before[:first] + bytes(last - first) + before[last:]
        case "swapped":
            others = [
                each for each in disk.files() if each[0] == folder and each[1][20:] == name[20:] and each[1] != name
            ]
            return disk.content(*rng.choice(others)) if others and name[:20].isdigit() else before
        case "old copy" if place in made.earlier.files():
            return made.earlier.content(folder, name)
    return before
