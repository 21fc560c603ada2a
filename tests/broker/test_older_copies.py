"""Files that come from an older copy: they agree with each other, and only others can tell."""

from __future__ import annotations

import random
from collections import deque
from typing import Final

import pytest

from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.recover import Recovered
from ottla.broker.runtime.manifest import MANIFEST
from ottla.broker.told import Told
from ottla.log.checkpoint import LOG_START_OFFSET_CHECKPOINT, decode_offsets
from ottla.log.partition import PartitionLog
from ottla.wire.crc import crc32c
from ottla.wire.errors import ErrorCode
from sim.disk import SimDisk
from tests.broker.directory.directories import contents, start
from tests.broker.metadata_changes import make_topic
from tests.log.batches import NOW_MS, batch
from tests.log.logs import append, retain

#: So that a few records fill a segment.
_SMALL = {"internal.segment.bytes": "200", "retention.ms": "-1"}
_EPOCHS: Final = "leader-epoch-checkpoint"
_METADATA: Final = "__cluster_metadata-0"
_MARK: Final = "acknowledged-end-offset"
_OLDER = f"t-0: {LOG_START_OFFSET_CHECKPOINT} says that the log begins at offset 0, and {_EPOCHS} says another one"


class _Watched(SimDisk):
    """Notes what a process would leave that is killed before a change, and what was known then."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[tuple[str, SimDisk]] = []
        self.known = ""
        self.is_watching = False

    def comes_to(self, action: str, name: str) -> None:
        super().comes_to(action, name)
        if self.is_watching:
            self.note()

    def note(self) -> None:
        self.left.append((self.known, self.after_kill()))


def _create(recovered: Recovered, name: str, configs: dict[str, str]) -> None:
    topic = make_topic(recovered.metadata, name, name.encode().ljust(16, b"-"), 1, configs)
    recovered.partitions.open_topic(topic, configs)


def _log(recovered: Recovered) -> PartitionLog:
    partition = recovered.partitions.find("t", 0)
    assert partition is not None
    return partition.log


def _write(recovered: Recovered, count: int) -> None:
    for _ in range(count):
        append(_log(recovered), batch())


def _delete(recovered: Recovered, offset: int) -> None:
    """As a broker does, before it answers."""
    assert _log(recovered).delete_records_before(offset).error is ErrorCode.NONE
    recovered.partitions.checkpoint_plan()()


def _ten_records(configs: dict[str, str] | None = None, disk: SimDisk | None = None) -> SimDisk:
    """Ten records in topic `t`, and a clean stop."""
    disk = disk or SimDisk()
    recovered = start(disk, [])
    _create(recovered, "t", configs or {})
    _write(recovered, 10)
    recovered.close()
    return disk


def _put_back(copy: SimDisk, disk: SimDisk, folder: str) -> None:
    """The files of a folder as they were; those of the data directory itself, if it is ""."""
    for each, name in disk.files():
        if each == folder:
            disk.change(folder, name, None)
    for each, name in copy.files():
        if each == folder:
            disk.change(folder, name, copy.content(folder, name))


def _start(disk: SimDisk) -> tuple[Recovered, list[str]]:
    """A start, and what it says."""
    told: list[Told] = []
    return start(disk, told), [each.text for each in told]


@pytest.mark.parametrize(
    ("written", "deleted", "configs"),
    [(0, 7, {}), (0, 10, {}), (20, 7, {}), (20, 25, {}), (20, 30, {}), (20, 25, _SMALL), (20, 30, _SMALL)],
)
def test_older_own_files_bring_no_deleted_record_back(written: int, deleted: int, configs: dict[str, str]) -> None:
    disk = _ten_records(configs)
    copy = disk.after_kill()
    recovered = start(disk, [])
    _write(recovered, written)
    _delete(recovered, deleted)
    if configs:
        assert retain(_log(recovered), NOW_MS)
    recovered.close()
    _put_back(copy, disk, "")
    recovered, told = _start(disk)
    assert len(told) == 1
    assert told[0].startswith(_OLDER)
    assert f"it begins at offset {deleted}" in told[0]
    assert (_log(recovered).log_start_offset, _log(recovered).end_offset) == (deleted, 10 + written)
    killed = disk.after_kill()
    recovered.close()
    for left in (disk, killed):
        recovered, told = _start(left)
        assert (_log(recovered).log_start_offset, _log(recovered).findings.damaged) == (deleted, ())
        assert told == [], "the checkpoint was written again, before anybody was served"


def test_older_own_files_that_do_not_know_the_partition_bring_no_deleted_record_back() -> None:
    disk = SimDisk()
    start(disk, []).close()
    copy = disk.after_kill()
    _ten_records(disk=disk)
    recovered = start(disk, [])
    _delete(recovered, 7)
    recovered.close()
    _put_back(copy, disk, "")
    recovered, (told,) = _start(disk)
    assert told.startswith(_OLDER)
    assert _log(recovered).log_start_offset == 7


def test_epochs_that_begin_behind_all_records_are_not_believed() -> None:
    """A digit has changed: no checksum covers it."""
    disk = _ten_records()
    disk.change("t-0", _EPOCHS, b"0\n1\n0 11\n")
    recovered, (told,) = _start(disk)
    assert told.startswith("t-0: there was a record at offset 11, and the log ends at 10")
    assert _log(recovered).log_start_offset == 0


def test_nothing_is_deleted_from_a_log_that_is_only_compacted() -> None:
    """Such as those of the coordinators: a digit has changed."""
    disk = _ten_records({"cleanup.policy": "compact"})
    disk.change("t-0", _EPOCHS, b"0\n1\n0 7\n")
    recovered, told = _start(disk)
    assert (_log(recovered).log_start_offset, told) == (0, [])


def test_a_manifest_of_an_older_version_proves_no_deletion() -> None:
    """There, the leader epochs of a log that begins with a hole, or was compacted, may begin behind its start."""
    disk = _ten_records()
    body = disk.content("", MANIFEST).partition(b"\n")[2]
    older = body.replace(b', "epochs_reach_start": true', b"")
    assert older != body
    disk.change("", MANIFEST, f"{crc32c(older)}\n".encode() + older)
    disk.change("t-0", _EPOCHS, b"0\n1\n0 7\n")
    recovered, told = _start(disk)
    assert (_log(recovered).log_start_offset, told) == (0, [])
    assert disk.content("t-0", _EPOCHS) == b"0\n1\n0 0\n"


@pytest.mark.parametrize("gone", [1, 100])
def test_a_hole_at_the_beginning_is_no_deletion(gone: int) -> None:
    """The epochs are made again from the batches behind it, if there are any."""
    disk = _ten_records(_SMALL)
    logs = [name for folder, name in disk.files() if folder == "t-0" and name.endswith(".log")]
    for name in (*logs[:gone], _EPOCHS):
        disk.change("t-0", name, None)
    end = int([*logs, "10.log"][min(gone, len(logs))].removesuffix(".log"))
    for number in range(4):
        recovered, told = _start(disk)
        assert _log(recovered).log_start_offset == 0
        assert _log(recovered).findings.damaged == ((0, end),)
        assert any(_EPOCHS in each for each in told) == (number == 0 and gone == 1)
        if number == 2:
            _write(recovered, 1)
        recovered.close()


def _killed_in_a_deletion() -> _Watched:
    disk = _Watched()
    _ten_records(_SMALL, disk)
    recovered = start(disk, [])
    _write(recovered, 5)
    disk.is_watching = True
    _delete(recovered, 7)
    disk.known = "deleted"
    disk.note()
    assert retain(_log(recovered), NOW_MS)
    _write(recovered, 5)
    _log(recovered).flush()
    _delete(recovered, 12)
    disk.known = "stopping"
    recovered.close()
    disk.note()
    return disk


def test_killed_anywhere_in_a_deletion_or_a_stop_a_start_finds_no_older_copy() -> None:
    """The leader epochs are written before the checkpoint; whoever dies in between has told nobody."""
    starts = []
    for known, left in _killed_in_a_deletion().left:
        recovered, told = _start(left)
        starts.append(_log(recovered).log_start_offset)
        assert not [each for each in told if "checkpoint" in each]
        assert starts[-1] >= {"": 0, "deleted": 7, "stopping": 12}[known]
        recovered.close()
        again, told = _start(left)
        assert (_log(again).log_start_offset, told) == (starts[-1], []), "a new segment of no record is told once"
        written = decode_offsets(left.content("", LOG_START_OFFSET_CHECKPOINT))
        assert written[TopicPartition("t", 0)] == starts[-1]
    assert (starts[0], starts[-1]) == (0, 12)


def _with_older_metadata(*, is_stopped: bool) -> SimDisk:
    """Topic `t` was made, then `u`; the metadata log does not know `u`."""
    disk = _ten_records()
    copy = disk.after_kill()
    recovered = start(disk, [])
    _create(recovered, "u", {})
    if is_stopped:
        recovered.close()
    else:
        recovered.partitions.checkpoint_plan()()
    _put_back(copy, disk, _METADATA)
    return disk


@pytest.mark.parametrize("is_stopped", [True, False])
def test_an_older_metadata_log_stops_the_start_and_nothing_is_changed(is_stopped: bool) -> None:
    """Its own end mark is as old: acknowledged topics and ACLs were gone, without a line."""
    disk = _with_older_metadata(is_stopped=is_stopped)
    before = contents(disk)
    with pytest.raises(
        StorageError, match=rf"{_METADATA}: the metadata log ends at offset \d+, and .*/{MANIFEST} "
    ) as no:
        start(disk, [])
    assert f"To go on without these changes, remove /disk/{_METADATA}/{_MARK}" in str(no.value)
    assert contents(disk) == before


def test_who_removes_the_end_mark_goes_on_with_an_older_metadata_log_also_when_killed() -> None:
    """Whatever was written on the way: no start behind it is refused."""
    made = _with_older_metadata(is_stopped=True)
    made.change(_METADATA, _MARK, None)
    disk = _Watched()
    for folder, name in made.files():
        files = disk.open_folder(folder) if folder else disk.own_files()
        files.write(name, made.content(folder, name))
    disk.is_watching = True
    recovered, told = _start(disk)
    assert any(_MARK in each for each in told)
    disk.note()
    recovered.close()
    disk.note()
    for _, left in disk.left:
        recovered = start(left, [])
        assert "u" not in recovered.metadata.image.topics
        recovered.close()


def test_killed_anywhere_in_changes_of_the_metadata_no_start_is_refused() -> None:
    disk = _Watched()
    _ten_records(disk=disk)
    recovered = start(disk, [])
    disk.is_watching = True
    for name in ("u", "v"):
        _create(recovered, name, {})
        disk.known += name
        recovered.partitions.checkpoint_plan()()
    recovered.close()
    disk.note()
    for known, left in disk.left[::2]:
        again = start(left, [])
        assert {"t", *known} <= set(again.metadata.image.topics)


def test_a_manifest_of_an_older_version_knows_of_no_end_of_the_metadata() -> None:
    disk = _with_older_metadata(is_stopped=True)
    body = disk.content("", MANIFEST).partition(b"\n")[2]
    at = body.index(b', "metadata_end"')
    older = body[:at] + b"}"
    disk.change("", MANIFEST, f"{crc32c(older)}\n".encode() + older)
    assert "u" not in start(disk, []).metadata.image.topics


def test_a_loss_of_power_leaves_no_metadata_log_that_is_shorter_than_the_manifest_says() -> None:
    """The manifest says what was synced, and not what was written."""
    for seed in range(20):
        disk = _ten_records()
        recovered = start(disk, [])
        _create(recovered, "u", {})
        change = recovered.metadata.change(recovered.metadata.removal_records([recovered.metadata.image.topics["u"]]))
        deque(change.encode(), 0)
        change.append()  # it waits for the device
        recovered.partitions.checkpoint_plan()()
        again = start(disk.after_power_loss(random.Random(seed)), [])
        assert {"t"} <= set(again.metadata.image.topics)
