"""Ask leaders for the offsets of times in their logs (ListOffsets), and for the ends of leader epochs."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import NO_LEADER
from ottla.client.core.offset_requests import epochs_request, list_request
from ottla.client.core.offsets import OffsetAndTimestamp
from ottla.client.errors import IncompleteAnswerError, KafkaError
from ottla.client.net.cluster import Cluster
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import ListOffsetsResponse
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse


async def list_offsets(
    cluster: Cluster,
    times: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    timeout_ms: float,
    leave_out_gone: bool = False,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The offset of each partition at its time (milliseconds, or a SpecialTimestamp); -1 where there is none.

    For `timeout_ms`, partitions that failed are asked for again. With `leave_out_gone` partitions that the cluster does
    not know are left out; otherwise this waits for them. Raises RequestTimeoutError, KafkaError.
    """
    found: dict[TopicPartition, OffsetAndTimestamp] = {}

    async def ask(leader: int, wanted: Mapping[TopicPartition, int]) -> None:
        await _ask(cluster, leader, wanted, read_committed, found)

    await _of_leaders(cluster, times, found, ask, "ListOffsets", timeout_ms, leave_out_gone)
    return found


async def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int], *, timeout_ms: float
) -> dict[TopicPartition, int]:
    """Where each partition's log leaves a leader epoch (KIP-320): the first offset of a later one, or the log's end.

    It is -1 where the leader does not know the epoch. Partitions that the cluster does not know are left out. Raises
    RequestTimeoutError, KafkaError.
    """
    found: dict[TopicPartition, int] = {}

    async def ask(leader: int, wanted: Mapping[TopicPartition, int]) -> None:
        await _ask_epochs(cluster, leader, wanted, found)

    await _of_leaders(cluster, epochs, found, ask, "OffsetForLeaderEpoch", timeout_ms, True)
    return found


async def _of_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    found: Mapping[TopicPartition, object],
    ask: Callable[[int, Mapping[TopicPartition, int]], Awaitable[None]],
    what: str,
    timeout_ms: float,
    leave_out_gone: bool,
) -> None:
    """Ask each partition's leader for what is wanted of it, until all of it is `found`."""

    async def attempt() -> None:
        missing = {
            tp: value
            for tp, value in wanted.items()
            if tp not in found and not (leave_out_gone and not cluster.snapshot.has(tp))
        }
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        leaderless: TopicPartition | None = None
        for tp, value in missing.items():
            leader = cluster.snapshot.leader(tp)
            if leader == NO_LEADER:
                leaderless = tp
            else:
                by_leader.setdefault(leader, {})[tp] = value
        asked = [ask(leader, of_leader) for leader, of_leader in by_leader.items()]
        for result in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        if leaderless is not None:
            await cluster.refreshed()
            code = cluster.snapshot.topic_errors.get(leaderless.topic, ErrorCode.LEADER_NOT_AVAILABLE)
            raise KafkaError.of(code, str(leaderless))

    with cluster.tracking({tp.topic for tp in wanted}):
        await cluster.ensure_metadata(timeout_ms)
        await cluster.retrying(attempt, what=what, timeout_ms=timeout_ms)


async def _ask_epochs(
    cluster: Cluster, leader: int, epochs: Mapping[TopicPartition, int], found: dict[TopicPartition, int]
) -> None:
    request = epochs_request(cluster.snapshot, epochs)
    answer: OffsetForLeaderEpochResponse = await cluster.request(leader, ApiKey.OFFSET_FOR_LEADER_EPOCH, request)
    told = {TopicPartition(topic.topic, p.partition): p for topic in answer.topics for p in topic.partitions}
    found |= {tp: p.end_offset if p.leader_epoch >= 0 else -1 for tp, p in told.items() if not p.error_code}
    _require(epochs, {tp: p.error_code for tp, p in told.items()}, f"broker {leader} says nothing of an epoch of")


async def _ask(
    cluster: Cluster,
    leader: int,
    times: Mapping[TopicPartition, int],
    read_committed: bool,
    found: dict[TopicPartition, OffsetAndTimestamp],
) -> None:
    request = list_request(cluster.snapshot, times, read_committed=read_committed)
    answer: ListOffsetsResponse = await cluster.request(leader, ApiKey.LIST_OFFSETS, request)
    told = {TopicPartition(topic.name, p.partition_index): p for topic in answer.topics for p in topic.partitions}
    found |= {
        tp: OffsetAndTimestamp(p.offset, p.timestamp, p.leader_epoch) for tp, p in told.items() if not p.error_code
    }
    _require(times, {tp: p.error_code for tp, p in told.items()}, f"broker {leader} says nothing about the offsets of")


def _require(asked: Collection[TopicPartition], codes: Mapping[TopicPartition, int], what_lacks: str) -> None:
    """Raise for a partition that was refused, or of which the answer says nothing."""
    for tp, code in codes.items():
        if code != ErrorCode.NONE:
            raise KafkaError.of(code, str(tp))
    left_out = set(asked) - codes.keys()
    if left_out:
        raise IncompleteAnswerError(f"{what_lacks} {min(left_out)}")
