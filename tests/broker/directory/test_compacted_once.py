"""A topic that was compacted, and is not any more, lacks offsets: no start and no check takes them for a loss."""

from __future__ import annotations

import random

import pytest

from ottla.base.clock import ManualClock
from ottla.base.types import TopicPartition
from ottla.broker.directory.survey import survey
from ottla.broker.metadata.image import TOPIC_RESOURCE
from ottla.broker.metadata.records import ConfigRecord
from ottla.broker.recover import Recovered, recover
from ottla.broker.told import Told
from ottla.log.cleaner.swap import Swap
from ottla.log.partition import PartitionLog
from sim.disk import SimDisk
from tests.broker.directory.directories import CONFIG, start
from tests.broker.metadata_changes import make_topic, write
from tests.log.batches import NOW_MS
from tests.log.cleaner.passes import begin, put, records

_TP = TopicPartition("keys", 0)
_COMPACTED = {"internal.segment.bytes": "700", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def _filled(disk: SimDisk) -> Recovered:
    recovered = start(disk, [])
    topic = make_topic(recovered.metadata, "keys", b"k" * 16, 1, _COMPACTED)
    recovered.partitions.open_topic(topic, _COMPACTED)
    log = _log(recovered)
    for number in range(60):
        put(log, b"%d" % (number % 7), b"value" * 3)
    return recovered


def _log(recovered: Recovered) -> PartitionLog:
    partition = recovered.partitions.find(*_TP)
    assert partition is not None
    return partition.log


def _clean(recovered: Recovered, swaps: int) -> None:
    """A pass as a broker makes it, up to so many calls of the log's owner."""
    log = _log(recovered)
    cleaning = begin(log)
    assert cleaning is not None
    recovered.partitions.checkpoint_plan()()
    for step in cleaning.steps():
        if isinstance(step, Swap):
            log.compaction.turn(step)
            swaps -= 1
            if swaps == 0:
                return
    log.compaction.end(cleaning)
    recovered.partitions.checkpoint_plan()()


def _delete_from_now_on(recovered: Recovered) -> None:
    write(recovered.metadata, [ConfigRecord(TOPIC_RESOURCE, "keys", "cleanup.policy", "delete")])


@pytest.mark.parametrize("swaps", [4, 100], ids=["half", "whole"])
@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
def test_what_a_pass_has_taken_is_no_loss(swaps: int, stopped: bool) -> None:
    disk = SimDisk()
    recovered = _filled(disk)
    _clean(recovered, swaps)
    if swaps == 4:
        disk = disk.after_kill()
        recovered = start(disk, [])
    _delete_from_now_on(recovered)
    missing = {*range(60)} - {each.offset for each in records(_log(recovered))}
    assert missing
    if stopped:
        recovered.close()
    else:
        disk = disk.after_kill()
    found = survey(disk, CONFIG, ManualClock(NOW_MS), deep=True)
    assert [each.text for each in found.told if each.kind.is_fault] == []
    told: list[Told] = []
    again = recover(CONFIG, ManualClock(NOW_MS), disk, random.Random(1), told.append)
    assert [each.text for each in told if each.kind.is_fault] == []
    assert missing == {*range(60)} - {each.offset for each in records(_log(again))}
