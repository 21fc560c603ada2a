"""Committed offsets, O1 to O6: what is written, how long it is kept, who commits when, and what a crash costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from ottla import (
    AsyncAdmin,
    AsyncConsumer,
    NoOffsetForPartitionError,
    OffsetAndMetadata,
    OffsetReset,
    TopicPartition,
)
from ottla.coordinator.group.config import GroupConfig
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.wire.offsets_records import OffsetCommitValue, decode_offset_commit_value
from tests.client.core.consumer.rig import Rig as ClientRig
from tests.coordinator.group.rig import GROUP, Rig
from tests.house.tree import ROOT
from tests.seeds.live import PATIENCE_S, LiveGroup, live_group

TP = TopicPartition("t", 0)
DAY_MS = 24 * 3_600_000


# --- on the broker ---


def test_o1_a_commit_is_a_record_in_kafkas_schema() -> None:
    """Key version 1 with group, topic and partition; value version 4 with offset, leader epoch, note and topic id."""
    rig = Rig()
    assert rig.commit(42, partition=3, metadata="note", topic_id=b"i" * 16) is ErrorCode.NONE
    (record,) = rig.records
    assert record.key == b"\x00\x01\x00\x07readers\x00\x05words\x00\x00\x00\x03"
    assert record.value is not None
    assert record.value[:2] == b"\x00\x04"
    assert decode_offset_commit_value(record.value) == OffsetCommitValue(42, 0, "note", rig.now_ms, -1, b"i" * 16)


def test_o1_the_note_of_a_commit_has_a_limit() -> None:
    """`offset.metadata.max.bytes`, 4096 unless told otherwise."""
    rig = Rig()
    assert rig.commit(1, metadata="x" * 4_096) is ErrorCode.NONE
    assert rig.commit(2, metadata="x" * 4_097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert rig.fetch().committed_offset == 1


def test_o2_offsets_go_seven_days_after_the_group_became_empty() -> None:
    """`offsets.retention.minutes`; a cleaner comes every ten minutes, and writes tombstones."""
    assert GroupConfig().offsets_retention_check_interval_ms == 600_000
    rig = Rig()
    (member,) = rig.stable(1, session_ms=300_000)
    rig.commit(1, member_id=member, generation=1)
    for _ in range(8 * 24 * 12):  # eight days, with a heartbeat every five minutes
        rig.advance(299_000)
        assert rig.heartbeat(member, 1) is ErrorCode.NONE
    assert rig.fetch().committed_offset == 1
    rig.leave(member)
    rig.advance(7 * DAY_MS - 1)
    assert rig.fetch().committed_offset == 1
    rig.advance(600_000)
    assert rig.fetch().committed_offset == -1
    assert [record.value for record in rig.records][-2:] == [None, None]  # of the offset, and of the group


def test_o2_an_old_clients_own_retention_is_honoured() -> None:
    """Versions 2 to 4 of OffsetCommit say how long; -1 leaves it to the broker."""
    rig = Rig()
    rig.commit(1, retention_ms=DAY_MS)
    rig.commit(2, partition=1)
    rig.advance(DAY_MS + 600_000)
    assert (rig.fetch(0).committed_offset, rig.fetch(1).committed_offset) == (-1, 2)


def test_o3_offsets_are_fetched_and_an_open_transaction_can_be_waited_for() -> None:
    """One partition, or all of a group; `require_stable` gets UNSTABLE_OFFSET_COMMIT until a transaction has ended."""
    rig = Rig()
    for partition in (0, 1):
        rig.commit(10 + partition, partition=partition)
    everything = rig.shard.fetch_offsets(OffsetFetchRequestGroup(GROUP, topics=None), require_stable=False)
    found = [(each.partition_index, each.committed_offset) for topic in everything.topics for each in topic.partitions]
    assert found == [(0, 10), (1, 11)]
    rig.commit_in_transaction(20)
    assert rig.fetch().committed_offset == 10
    assert rig.fetch(require_stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    rig.marker(7, commit=True)
    assert rig.fetch(require_stable=True).committed_offset == 20


# --- in the client ---


async def _committed(group: LiveGroup) -> int:
    async with AsyncAdmin(group.servers) as admin:
        found = await admin.list_group_offsets("g")
        return found[TP].offset if TP in found else -1


async def test_o4_positions_are_committed_by_themselves_or_by_hand() -> None:
    """By themselves in a later poll; by hand waiting, or with a callback, all or some of them."""
    earliest = {"auto.offset.reset": "earliest"}
    async with live_group(t=1) as group:
        await group.write("t", b"0", b"1", b"2")
        group.join("C0", ("t",), **earliest, **{"auto.commit.interval.ms": 100})
        await group.until(lambda: len(group.read.get("C0", [])) == 3)
        async with asyncio.timeout(PATIENCE_S):
            while await _committed(group) != 3:
                await group.members["C0"].poll(0.02)
        await group.leave("C0")
        by_hand = group.join("C0", ("t",), **earliest, **{"enable.auto.commit": False})
        await group.write("t", b"3", b"4")
        await group.until(lambda: len(group.read["C0"]) == 5)
        assert await _committed(group) == 3
        await by_hand.commit({TP: OffsetAndMetadata(4)})
        assert await _committed(group) == 4
        heard: list[Exception | None] = []
        by_hand.commit_async(callback=lambda offsets, error: heard.append(error))
        await group.until(lambda: heard == [None])
        assert await _committed(group) == 5


def test_o4_only_what_the_user_has_had_is_committed() -> None:
    """Every `auto.commit.interval.ms` (5 s): what the last poll returned counts when poll is called again."""
    rig = ClientRig({"group.id": "g"})
    rig.subscribe("t")
    rig.become_stable(TP)
    assert rig.config.auto_commit_interval_ms == 5_000
    rig.state(TP).seek(7)
    rig.do(rig.core.positions_chosen)
    rig.wait(4.9)
    rig.poll()
    assert not rig.asked(ApiKey.OFFSET_COMMIT)
    rig.wait(0.2)
    rig.poll()
    (topic,) = rig.message(ApiKey.OFFSET_COMMIT).topics
    assert [each.committed_offset for each in topic.partitions] == [7]


@pytest.mark.parametrize(("policy", "begins_at"), [("earliest", 2), ("latest", 4), ("by_duration:P1D", 2)])
async def test_o5_a_reset_says_where_reading_goes_on_and_how_many_were_skipped(
    policy: str, begins_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Offset 1 was deleted meanwhile. The log tells it, too, and an event."""
    resets: list[OffsetReset] = []
    async with live_group(t=1) as group:
        await group.write("t", b"0", b"1", b"2", b"3")
        async with AsyncAdmin(group.servers) as admin:
            await admin.delete_records({TP: 2})
        consumer = AsyncConsumer({**group.servers, "auto.offset.reset": policy}, on_reset=resets.append)
        async with consumer:
            consumer.assign([TP])
            consumer.seek(TP, 1)
            async with asyncio.timeout(PATIENCE_S):
                while not resets:
                    await consumer.poll(0.05)
    (reset,) = resets
    assert reset.before == 1
    assert (reset.after, reset.skipped) == (begins_at, begins_at - 1)
    assert str(reset).endswith(f"reading goes on at {begins_at}: {begins_at - 1} offsets are skipped")
    assert str(reset) in caplog.text


async def test_o5_without_a_policy_poll_raises() -> None:
    """`auto.offset.reset=none`."""
    async with live_group(t=1) as group:
        group.join("C0", ("t",), **{"auto.offset.reset": "none"})
        with pytest.raises(NoOffsetForPartitionError):
            await group.until(lambda: False)


@pytest.mark.parametrize(
    ("guarantee", "copied"),
    [
        ("at-most-once", [b"0", b"2"]),
        ("at-least-once", [b"0", b"1", b"1", b"2"]),
        ("exactly-once", [b"0", b"1", b"2"]),
    ],
)
async def test_o6_each_guarantee_over_a_crash_between_its_two_steps(guarantee: str, copied: list[bytes]) -> None:
    """`examples/delivery.py` processes and commits each record; it is killed between the two steps of record 1."""
    async with live_group(t=1, out=1) as group:
        await group.write("t", b"0", b"1", b"2")
        for more, status in ((["--crash-at", "1"], -9), ([], 0)):
            command = [sys.executable, str(ROOT / "examples" / "delivery.py"), guarantee, *more]
            command += ["--bootstrap", group.broker.bootstrap_servers, "--input", "t", "--output", "out"]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            assert done.returncode == status, done.stderr
        reads = group.join("C0", ("out",), **{"auto.offset.reset": "earliest", "isolation.level": "read_committed"})
        await group.until(lambda: len(group.read.get("C0", [])) >= len(copied))
        assert [record.value for record in group.read["C0"] + await reads.poll(0)] == copied
