"""Data directories in memory with every kind of file in them, and what was acknowledged in them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from ottla.base.clock import ManualClock
from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.recover import Recovered, recover
from ottla.broker.told import Told
from ottla.log.cleaner.swap import Swap
from ottla.log.partition import PartitionLog
from ottla.log.results import Isolation
from ottla.wire.batch import check_integrity, iter_headers
from ottla.wire.errors import ErrorCode
from sim.disk import SimDisk
from tests.broker.metadata_changes import make_topic, new_producer_id
from tests.log.batches import NOW_MS, batch
from tests.log.cleaner.passes import begin
from tests.log.logs import append, append_in_transaction, committed_offsets, content, end

CONFIG = BrokerConfig({"log.dirs": ("/disk",)})
#: Segments of a few batches, an index entry for every batch.
_SMALL = {"internal.segment.bytes": "700", "index.interval.bytes": "0"}
_TOPICS = {"orders": 2, "bills": 1}
_COMPACTED = {**_SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
_STEPS = 14

#: Base offset of a batch → its bytes behind the leader epoch, which the broker sets.
Batches = dict[int, bytes]


class Made(NamedTuple):
    """A directory, as a broker has left it."""

    disk: SimDisk
    #: What was acknowledged and not deleted, by partition.
    batches: dict[TopicPartition, Batches]
    #: The same, and what was deleted, or cleaned away: all that a batch has been.
    ever: dict[TopicPartition, dict[int, set[bytes]]]
    #: What a read_committed reader is shown.
    visible: dict[TopicPartition, set[int]]
    #: As it was in the middle, for copies of old files.
    earlier: SimDisk
    was_stopped: bool


def start(disk: SimDisk, told: list[Told], *, now_ms: int = NOW_MS) -> Recovered:
    """A start. StorageError when it is refused."""
    return recover(CONFIG, ManualClock(now_ms), disk, random.Random(1), told.append)


@cache
def made(seed: int, *, stopped: bool) -> Made:
    """A directory with transactions, deleted records, checkpoints in the middle, and perhaps a second start."""
    rng = random.Random(f"{seed} {stopped}")
    disk = SimDisk()
    recovered = start(disk, [])
    for name, count in _TOPICS.items():
        _create(recovered, name, count, _SMALL)
    _create(recovered, "__consumer_offsets", 1, _COMPACTED)
    new_producer_id(recovered.metadata)
    earlier = disk
    sequences: dict[tuple[TopicPartition, int], int] = {}
    for step in range(_STEPS):
        for partition in recovered.partitions.all():
            _write(partition.log, rng, sequences)
        if step == _STEPS // 2:
            _checkpoint(recovered)
            earlier = disk.after_kill()
        if step == _STEPS - 3 and rng.random() < 0.6:
            _checkpoint(recovered)
    ever = all_readable(recovered)
    for partition in recovered.partitions.all():
        if rng.random() < 0.4:
            partition.log.delete_records_before(rng.randrange(partition.log.end_offset))
            partition.log.retire(NOW_MS)
            partition.log.delete_retired()
    batches = all_readable(recovered)
    shown = {each.tp: visible(each.log) or set() for each in recovered.partitions.all()}
    if stopped:
        recovered.close()
    elif rng.random() < 0.7:
        _clean_in_part(recovered, rng)
        finished = start(disk.after_kill(), [])  # a start brings what was begun to its end, or takes it back
        batches = all_readable(finished)
        for partition in finished.partitions.all():
            shown[partition.tp] |= visible(partition.log) or set()
    return Made(disk, batches, _all_that_was(ever, batches), shown, earlier, stopped)


def _clean_in_part(recovered: Recovered, rng: random.Random) -> None:
    """The broker will die in the middle of a cleaning, with `.cleaned` or `.swap` files."""
    _checkpoint(recovered)
    for partition in recovered.partitions.all():
        cleaning = begin(partition.log) if partition.log.config.compacts else None
        if cleaning is not None:
            for _, step in zip(range(rng.randrange(26, 44)), cleaning.steps(), strict=False):
                if isinstance(step, Swap):
                    partition.log.compaction.turn(step)
                    if rng.random() < 0.4:
                        return


def _all_that_was(*ever: dict[TopicPartition, Batches]) -> dict[TopicPartition, dict[int, set[bytes]]]:
    found: dict[TopicPartition, dict[int, set[bytes]]] = {}
    for each in ever:
        for tp, batches in each.items():
            for offset, data in batches.items():
                found.setdefault(tp, {}).setdefault(offset, set()).add(data)
    return found


def _create(recovered: Recovered, name: str, count: int, configs: dict[str, str]) -> None:
    topic_id = name.encode().ljust(16, b"-")[:16]
    topic = make_topic(recovered.metadata, name, topic_id, count, configs)
    recovered.partitions.open_topic(topic, configs)


def _write(log: PartitionLog, rng: random.Random, sequences: dict[tuple[TopicPartition, int], int]) -> None:
    producer_id = rng.choice((7, 8))
    key = log.tp, producer_id
    match rng.randrange(4):
        case 0:
            append(log, batch(rng.randrange(1, 4), value=rng.randbytes(9), timestamps_ms=None))
        case _:
            count = rng.randrange(1, 4)
            append_in_transaction(log, sequences.get(key, 0), count, producer_id=producer_id)
            sequences[key] = sequences.get(key, 0) + count
            if rng.random() < 0.8:
                end(log, commit=rng.random() < 0.5, producer_id=producer_id)


def _checkpoint(recovered: Recovered) -> None:
    for partition in recovered.partitions.all():
        partition.log.flush()
    recovered.partitions.checkpoint_plan()()


def readable(log: PartitionLog) -> Batches:
    """All that a reader gets from the log's start to its end; it steps over what it cannot read."""
    found: Batches = {}
    offset = log.log_start_offset
    while offset < log.end_offset:
        following = offset + 1
        with suppress(CorruptDataError):
            read = log.read(offset, 1, isolation=Isolation.READ_UNCOMMITTED, min_one_batch=True)
            if read.error is ErrorCode.NONE:
                for base_offset, last_offset, data in _whole(content(read)):
                    found[base_offset] = data
                    following = max(following, last_offset + 1)
        offset = following
    return found


def _whole(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    for position, header in iter_headers(data):
        check_integrity(data, position, header)
        yield header.base_offset, header.last_offset, data[position + 16 : position + header.size_bytes]


def all_readable(recovered: Recovered) -> dict[TopicPartition, Batches]:
    """The same of every partition."""
    return {each.tp: readable(each.log) for each in recovered.partitions.all()}


def contents(disk: SimDisk) -> dict[tuple[str, str], bytes]:
    """Every file."""
    return {each: disk.content(*each) for each in disk.files()}


def visible(log: PartitionLog) -> set[int] | None:
    """The offsets that a read_committed reader is shown, from the log's start on; None where it cannot read all."""
    with suppress(CorruptDataError):
        offset = log.log_start_offset
        while data := content(log.read(offset, 1_000_000, isolation=Isolation.READ_COMMITTED)):
            for _, last_offset, _ in _whole(data):  # a header that is not checked may say that it ends anywhere
                offset = last_offset + 1
        return set(committed_offsets(log))
    return None
