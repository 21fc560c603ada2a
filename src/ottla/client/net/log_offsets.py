"""Ask leaders for the offsets of times in their logs (ListOffsets)."""

import asyncio
from collections.abc import Mapping

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import NO_LEADER
from ottla.client.core.offset_requests import list_request
from ottla.client.core.offsets import OffsetAndTimestamp
from ottla.client.errors import ClientError, IncompleteAnswerError, KafkaError
from ottla.client.net.cluster import Cluster
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import ListOffsetsResponse


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

    async def attempt() -> None:
        missing = {
            tp: ts
            for tp, ts in times.items()
            if tp not in found and not (leave_out_gone and not cluster.snapshot.has(tp))
        }
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        leaderless: TopicPartition | None = None
        for tp, ts in missing.items():
            leader = cluster.snapshot.leader(tp)
            if leader == NO_LEADER:
                leaderless = tp
            else:
                by_leader.setdefault(leader, {})[tp] = ts
        asked = [_ask(cluster, leader, wanted, read_committed, found) for leader, wanted in by_leader.items()]
        for result in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        if leaderless is not None:
            await cluster.refreshed()
            code = cluster.snapshot.topic_errors.get(leaderless.topic, ErrorCode.LEADER_NOT_AVAILABLE)
            raise KafkaError.of(code, str(leaderless))

    with cluster.tracking({tp.topic for tp in times}):
        await cluster.ensure_metadata(timeout_ms)
        await cluster.retrying(attempt, what="ListOffsets", timeout_ms=timeout_ms)
    return found


async def _ask(
    cluster: Cluster,
    leader: int,
    times: Mapping[TopicPartition, int],
    read_committed: bool,
    found: dict[TopicPartition, OffsetAndTimestamp],
) -> None:
    request = list_request(cluster.snapshot, times, read_committed=read_committed)
    answer: ListOffsetsResponse = await cluster.request(leader, ApiKey.LIST_OFFSETS, request)
    error: ClientError | None = None
    left_out = set(times)
    for topic in answer.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            left_out.discard(tp)
            if p.error_code == ErrorCode.NONE:
                found[tp] = OffsetAndTimestamp(p.offset, p.timestamp, p.leader_epoch)
            else:
                error = KafkaError.of(p.error_code, str(tp))
    if left_out:
        error = error or IncompleteAnswerError(f"broker {leader} says nothing about the offsets of {min(left_out)}")
    if error is not None:
        raise error
