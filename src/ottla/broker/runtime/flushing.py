"""Brings one log to the device while others are served: for the regular flush, and before a pass of the cleaner."""

import asyncio

from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.slices import Slices


async def bring_to_device(partition: Partition, end_offset: int, partitions: Partitions, slices: Slices) -> None:
    """Flush the log, at least up to this offset. StorageError when the device refuses.

    Snapshots of many producers are packed in slices. The thread for files writes them, and looks which ones go: so it
    does not when the directory has another name. In each pause the partition may be deleted, and a new topic may get
    its names.
    """
    log, owes = partition.log, partition.log.needs_flush
    while (owes or log.flushed_offset < end_offset) and partitions.find(*partition.tp) is partition:
        owes = False
        plan = log.flush_plan()
        if plan.is_long:
            await slices.run(plan.steps())
            if partitions.find(*partition.tp) is not partition:
                return
        await partitions.in_thread(plan.write)
        await asyncio.get_running_loop().run_in_executor(None, plan.sync)
        log.mark_flushed(plan)
        del plan  # its files are closed before the next ones are opened
