"""Mends a data directory: what a start does by itself, and the files that a start does not see do not fit.

A file that can be made again from its log is taken out of the way; recovery then makes it again, as it would after any
loss of it. Nothing else is written here.
"""

import random
from collections.abc import Iterable

from ottla.base.clock import Clock
from ottla.broker.config import BrokerConfig
from ottla.broker.disk import Disk
from ottla.broker.recover import recover
from ottla.broker.told import Told
from ottla.log.names import TXN_INDEX


def repair(
    disk: Disk, config: BrokerConfig, clock: Clock, rng: random.Random, misfits: Iterable[tuple[str, str]]
) -> list[Told]:
    """Start and stop on the directory, which the caller has locked. Returns what was found on the way.

    `misfits` are those of a survey. StorageError when no start can do it, or the disk refuses a write.
    """
    told: list[Told] = []
    recover(config, clock, disk, rng, told.append).close()
    again = list(misfits)
    for folder, name in again:
        storage = disk.open_folder(folder)
        if name.endswith(TXN_INDEX):
            storage.write(name, b"")  # where there is none, there would seem to be no aborts
        else:
            storage.delete(name)
    if again:
        recover(config, clock, disk, rng, told.append).close()
    return told
