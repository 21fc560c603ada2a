"""SPEC C5, O5: positions against a cluster that is a few canned answers. No network."""

import asyncio
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.config.consumer import consumer_config
from ottla.client.consumer.resets import OffsetReset, Resets
from ottla.client.core.consumer.positions import NO_POSITION, PartitionState, Positions
from ottla.client.core.metadata import ClusterSnapshot, Node, PartitionInfo, TopicInfo
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.errors import LogTruncatedError, NoOffsetForPartitionError, OffsetOutOfRangeError
from ottla.wire.apis import ApiKey
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

TP = TopicPartition("t", 0)


def snapshot(epoch: int) -> ClusterSnapshot:
    return ClusterSnapshot(
        nodes={1: Node(1, "a", 1)}, topics={"t": TopicInfo("t", bytes(16), {0: PartitionInfo(1, epoch)})}
    )


class CannedCluster:
    """Says where the epoch of the last record ends, and nothing else."""

    def __init__(self, end_offset: int) -> None:
        self.snapshot = snapshot(3)
        self.listeners: list[Any] = []
        self.on_update = self.listeners.append
        self.end_offset = end_offset
        self.asked: list[tuple[int, int]] = []

    def request_update(self) -> None:
        pass

    async def request(self, node_id: int, api: ApiKey, message: OffsetForLeaderEpochRequest) -> Any:
        assert api is ApiKey.OFFSET_FOR_LEADER_EPOCH
        part = message.topics[0].partitions[0]
        self.asked.append((part.current_leader_epoch, part.leader_epoch))
        end = EpochEndOffset(0, 0, part.leader_epoch, self.end_offset)
        return OffsetForLeaderEpochResponse(topics=(OffsetForLeaderTopicResult("t", (end,)),))

    def move_leader(self, epoch: int) -> None:
        before, self.snapshot = self.snapshot, snapshot(epoch)
        for listener in self.listeners:
            listener(before, self.snapshot)


class Bench:
    """Resets over one partition, with what they report."""

    def __init__(
        self, end_offset: int = 100, policy: str = "earliest", committed: OffsetAndMetadata | None = None
    ) -> None:
        self.cluster = CannedCluster(end_offset)
        self.positions = Positions()
        self.positions.assign([TP])
        self.happened: list[OffsetReset] = []
        self.failures: list[Exception] = []
        self.done = asyncio.Event()

        async def read_committed(tps: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
            return {TP: committed} if committed is not None else {}

        self.resets = Resets(
            self.cluster,  # type: ignore[arg-type]
            self.positions,
            consumer_config({"bootstrap.servers": "a:1", "auto.offset.reset": policy}),
            now_ms=lambda: 0,
            committed=read_committed,
            happened=self.happened.append,
            done=self.done.set,
            failed=self.failures.append,
        )

    @property
    def state(self) -> PartitionState:
        state = self.positions.get(TP)
        assert state is not None
        return state

    async def after_a_new_leader(self) -> None:
        """The user has read up to offset 50, of epoch 3; then the leader changes."""
        self.state.seek(50)
        self.state.position_epoch = 3
        self.cluster.move_leader(3)
        self.cluster.move_leader(4)
        assert self.state.validate
        await self.done.wait()


async def test_c5_a_new_leader_is_asked_whether_it_has_what_was_read() -> None:
    bench = Bench(end_offset=80)
    await bench.after_a_new_leader()
    assert bench.cluster.asked == [(4, 3)]
    assert (bench.state.position, bench.state.validate, bench.happened) == (50, False, [])


async def test_c5_a_truncated_log_moves_the_position_back_and_says_so() -> None:
    bench = Bench(end_offset=40)
    await bench.after_a_new_leader()
    assert (bench.state.position, bench.happened) == (40, [OffsetReset(TP, 50, 40)])


async def test_c5_without_a_reset_policy_a_truncated_log_is_an_error() -> None:
    bench = Bench(end_offset=40, policy="none")
    await bench.after_a_new_leader()
    assert [type(error) for error in bench.failures] == [LogTruncatedError]
    assert bench.state.position == 50


async def test_a_committed_offset_is_where_reading_begins() -> None:
    bench = Bench(committed=OffsetAndMetadata(7))
    bench.resets.pump()
    await bench.done.wait()
    assert (bench.state.position, bench.state.fetch_offset) == (7, 7)


async def test_o5_without_an_offset_and_a_policy_poll_fails() -> None:
    bench = Bench(policy="none")
    bench.resets.pump()
    await bench.done.wait()
    assert [type(error) for error in bench.failures] == [NoOffsetForPartitionError]
    assert bench.state.position == NO_POSITION


@pytest.mark.parametrize("policy", ["none"])
async def test_o5_out_of_range_without_a_policy_keeps_the_position(policy: str) -> None:
    bench = Bench(policy=policy)
    bench.state.seek(9)
    bench.resets.out_of_range(bench.state)
    assert [type(error) for error in bench.failures] == [OffsetOutOfRangeError]
    assert (bench.state.position, bench.state.fetch_offset) == (9, 9)
    assert bench.state.retry_at_s > 0, "it is asked again, but not at once"


@pytest.mark.parametrize(
    ("reset", "text"),
    [
        (OffsetReset(TP, -1, 7), "t-0: reading begins at offset 7"),
        (
            OffsetReset(TP, 5, 9),
            "t-0: offset 5 is not in the log any more, reading goes on at 9: 4 offsets are skipped",
        ),
        (
            OffsetReset(TP, 100, 0),
            "t-0: offset 100 is beyond the end of the log (it was cut, the topic was made anew, or the offset was "
            "never there), reading goes on at 0",
        ),
    ],
)
def test_o5_a_reset_says_what_became_of_the_records(reset: OffsetReset, text: str) -> None:
    assert str(reset) == text


@pytest.mark.parametrize("policy", ["earliest", "none"])
async def test_c5_of_a_truncated_log_the_offsets_that_are_gone_are_named(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(end_offset=40, policy=policy)
    await bench.after_a_new_leader()
    [said] = [*caplog.messages, *map(str, bench.failures)]
    assert said.startswith("t-0: the log was cut at offset 40, of what was read offsets 40 to 49 are gone")


async def test_o5_an_offset_out_of_range_without_a_policy_says_what_to_do() -> None:
    bench = Bench(policy="none")
    bench.state.seek(9)
    bench.resets.out_of_range(bench.state)
    assert "offset 9 is before the start of the log or beyond its end" in str(bench.failures[0])
    assert "seek()" in str(bench.failures[0])
