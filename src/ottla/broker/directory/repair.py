"""Mends a data directory: what a start does by itself, and the files that a start does not see do not fit.

A file that can be made again from its log is taken out of the way; recovery then makes it again, as it would after any
loss of it. Nothing else is written here.
"""

import random
from collections.abc import Iterable
from typing import Final

from ottla.base.clock import Clock
from ottla.broker.config import BrokerConfig
from ottla.broker.disk import Disk
from ottla.broker.recover import recover
from ottla.broker.told import Told
from ottla.log.names import TXN_INDEX

_MOST_STARTS: Final = 5


def repair(
    disk: Disk, config: BrokerConfig, clock: Clock, rng: random.Random, misfits: Iterable[tuple[str, str]]
) -> list[Told]:
    """Start and stop on the directory, which the caller has locked. Returns what was found on the way.

    `misfits` are those of a survey. StorageError when no start can do it, or the disk refuses a write.
    """
    told = _start(disk, config, clock, rng)
    again = list(misfits)
    for folder, name in again:
        storage = disk.open_folder(folder)
        if name.endswith(TXN_INDEX):
            storage.write(name, b"")  # where there is none, there would seem to be no aborts
        else:
            storage.delete(name)
    return told + _start(disk, config, clock, rng) if again else told


def _start(disk: Disk, config: BrokerConfig, clock: Clock, rng: random.Random) -> list[Told]:
    """Start and stop until a start mends nothing, and says what the one before it has said.

    What one has cut may leave a damaged batch at the end of the log, where the next one looks closer.
    """
    told: list[Told] = []
    before: list[Told] | None = None
    for _ in range(_MOST_STARTS):
        found: list[Told] = []
        recover(config, clock, disk, rng, found.append).close()
        told += found
        if found == before and not any(each.kind.is_mended for each in found):
            break
        before = found
    return told
