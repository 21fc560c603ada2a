"""A changed leader epoch of the metadata log: no checksum covers one, and it must not make another's directory of ours.

A quorum begins each of its epochs with a control batch (KIP-595), and that a batch is one the CRC does cover.
"""

from __future__ import annotations

from random import Random

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import StorageError
from ottla.broker.config import BrokerConfig
from ottla.broker.metadata.quorum import decode_vote, mark_of_apache_kafka
from ottla.broker.metadata.records import TopicRecord
from ottla.broker.recover import recover
from ottla.broker.told import Told
from ottla.wire.batch import assign_offsets, iter_headers
from sim.disk import SimDisk
from sim.kraft_directory import METADATA
from tests.broker.metadata.kraft_directory import KraftDirectory
from tests.log.batches import NOW_MS

_LOG = f"{0:020}.log"
_EPOCHS = "leader-epoch-checkpoint"


def _start(disk: SimDisk, told: list[Told] | None = None) -> None:
    """A start of ours, and a stop in order."""
    found = [] if told is None else told
    recovered = recover(BrokerConfig({"log.dirs": ("/disk",)}), ManualClock(NOW_MS), disk, Random(1), found.append)
    if not recovered.metadata.image.topics:
        recovered.metadata.write_now(recovered.metadata.change([TopicRecord("t", b"t" * 16)]))
    recovered.close()


def _ours() -> SimDisk:
    disk = SimDisk()
    _start(disk)
    return disk


def _set_epoch(disk: SimDisk, at: int, epoch: int) -> int:
    """Change the leader epoch of the batch with this index. Returns the batch's position."""
    content = bytearray(disk.content(METADATA, _LOG))
    position, header = list(iter_headers(content))[at]
    assign_offsets(content, position, header.base_offset, epoch)
    disk.change(METADATA, _LOG, bytes(content))
    return position


@pytest.mark.parametrize("at", [0, 1, -1])
@pytest.mark.parametrize("epoch", [-1, 1, 249, 2**31 - 1])
def test_a_start_is_refused_with_the_file_and_the_position(at: int, epoch: int) -> None:
    disk = _ours()
    position = _set_epoch(disk, at, epoch)
    files = {each: disk.content(*each) for each in disk.files()}
    reason = rf"{METADATA}/{_LOG} is damaged at byte {position} \(leader epoch {epoch} where 0 is due\)"
    with pytest.raises(StorageError, match=reason):
        _start(disk)
    assert {each: disk.content(*each) for each in disk.files()} == files, "nothing was changed"


def test_behind_apache_kafka_an_epoch_goes_back_or_on_only_with_a_change_of_leaders() -> None:
    theirs = KraftDirectory()
    theirs.start()
    theirs.make_topic()
    theirs.stop()
    theirs.recover().close()
    for epoch in (0, 1, 3):
        changed = theirs.disk.after_kill()
        _set_epoch(changed, -1, epoch)
        with pytest.raises(StorageError, match=rf"leader epoch {epoch} where 2 is due"):
            _start(changed)
    _start(theirs.disk)


@pytest.mark.parametrize("epoch", [3, 2**31 - 2])
def test_a_vote_of_a_later_epoch_than_the_log_begins_that_epoch(epoch: int) -> None:
    """A changed digit of the vote: what we wrote then was of an epoch that nothing had begun, and the next start was
    refused for that."""
    theirs = KraftDirectory()
    theirs.start()
    theirs.make_topic()
    theirs.stop()
    theirs.recover().close()
    vote = theirs.disk.content(METADATA, "quorum-state")
    assert b'"leaderEpoch":2' in vote
    theirs.disk.change(METADATA, "quorum-state", vote.replace(b'"leaderEpoch":2', b'"leaderEpoch":%d' % epoch))
    for name in ("one", "two"):
        recovered = theirs.recover()
        recovered.metadata.write_now(recovered.metadata.change([TopicRecord(name, name.encode().ljust(16))]))
        recovered.close()
    assert {"orders", "one", "two"} <= theirs.recover().metadata.image.topics.keys()


def test_a_log_that_has_lost_its_change_of_leaders_goes_on_in_the_epoch_of_the_vote() -> None:
    """The end mark was removed, as the refusal says: the start after the next one was refused."""
    theirs = KraftDirectory()
    theirs.start()
    theirs.make_topic()
    theirs.stop()
    theirs.recover()  # killed
    disk = theirs.disk.after_kill()
    content = disk.content(METADATA, _LOG)
    ours = next(position for position, header in iter_headers(content) if header.partition_leader_epoch == 2)
    disk.change(METADATA, _LOG, content[:ours])
    with pytest.raises(StorageError, match="To go on without these changes, remove"):
        _start(disk)
    disk.change(METADATA, "acknowledged-end-offset", None)
    for _ in range(3):
        _start(disk)


def test_after_a_stop_in_order_too_one_can_go_on_without_the_last_changes() -> None:
    disk = _ours()
    content = disk.content(METADATA, _LOG)
    last, _ = list(iter_headers(content))[-1]
    disk.change(METADATA, _LOG, content[:last])
    with pytest.raises(StorageError, match="To go on without these changes, remove"):
        _start(disk)
    disk.change(METADATA, "acknowledged-end-offset", None)
    told: list[Told] = []
    _start(disk, told)
    assert "whether the last changes of the metadata log are all there cannot be checked" in told[0].text
    assert [name for folder, name in disk.files() if folder == METADATA and name.endswith(".log")] == [_LOG]
    told.clear()
    _start(disk, told)
    assert told == []


@pytest.mark.parametrize("said", [b"0\n1\n3 0\n", b"0\n2\n0 0\n249 3\n"])
def test_leader_epochs_that_no_batch_has_are_no_mark_of_apache_kafka(said: bytes) -> None:
    """broker-damage 1600000373: the directory was taken for Apache Kafka's, and the manifest removed unread."""
    disk = _ours()
    disk.change(METADATA, _EPOCHS, said)
    disk.change("", "ottla-manifest", b"?")
    assert mark_of_apache_kafka(disk) is None
    told: list[Told] = []
    _start(disk, told)
    assert any("ottla-manifest is damaged" in each.text for each in told)
    assert ("__cluster_metadata-0", "quorum-state") not in disk.files()


@pytest.mark.parametrize("said", [None, b"?", b"0\n1\n1 0\n"])
def test_a_directory_of_apache_kafka_is_known_without_its_vote_by_the_change_of_leaders(said: bytes | None) -> None:
    theirs = KraftDirectory()
    theirs.start()
    theirs.make_topic()
    theirs.stop()
    theirs.disk.change(METADATA, "quorum-state", None)
    theirs.disk.change(METADATA, _EPOCHS, said)
    assert mark_of_apache_kafka(theirs.disk) == f"{METADATA}/quorum-state"
    told: list[Told] = []
    theirs.recover(told).close()
    assert f"{METADATA}/quorum-state is gone: perhaps Apache Kafka led last" in told[0].text
    assert decode_vote(theirs.disk.content(METADATA, "quorum-state")) == (1, 2, (1,), True)
