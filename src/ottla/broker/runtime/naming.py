"""Rolls that would wait for the device: what they wait for is brought there before, in a thread, once for all of them.

A request may write to many partitions, and each batch in it may be the one with which the first segment of its
partition ends.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial

from ottla.base.errors import StorageError
from ottla.broker.runtime.partition import Partition


async def name_first_files(partitions: Collection[Partition]) -> None:
    """Have the device know the name of the first file of each. Where it refuses, the roll itself hears of it."""
    if not partitions:
        return
    named: list[Partition] = []
    await asyncio.get_running_loop().run_in_executor(None, partial(deque, _sync_names(partitions, named), 0))
    for partition in named:
        partition.log.rolling.named()


def _sync_names(partitions: Collection[Partition], named: list[Partition]) -> Iterator[None]:
    for partition in partitions:
        with suppress(StorageError):
            partition.log.rolling.sync_name()
            named.append(partition)
        yield
