"""Look at single records in logs, to learn when they were written: for a group's lag in time."""

import asyncio
from collections.abc import Mapping

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import NO_LEADER
from ottla.client.errors import IncompleteAnswerError, KafkaError
from ottla.client.net.cluster import Cluster
from ottla.wire.apis import ApiKey
from ottla.wire.batch import iter_headers
from ottla.wire.codec import Buffer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.records import decode_batch

#: A broker sends at least one whole batch, however small this is.
_FETCH_BYTES = 4_096
#: Partitions that are asked about at once: each answer may be as large as a batch.
_AT_ONCE = 8


async def first_timestamps(
    cluster: Cluster, offsets: Mapping[TopicPartition, range], *, timeout_ms: float
) -> dict[TopicPartition, int]:
    """The timestamp (ms since the epoch) of the first record of each partition that lies in its range of offsets.

    Control records do not count, those of aborted transactions do. A partition without such a record is left out, and
    so is one whose log no longer has the beginning of the range. Raises RequestTimeoutError, KafkaError.
    """
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(tp: TopicPartition, wanted: range) -> int | None:
        async with turns:
            return await cluster.retrying(
                lambda: _first_timestamp(cluster, tp, wanted), what=f"Fetch({tp})", timeout_ms=timeout_ms
            )

    asked = {tp: wanted for tp, wanted in offsets.items() if wanted}
    found = await asyncio.gather(*(one(tp, wanted) for tp, wanted in asked.items()))
    return {tp: at for tp, at in zip(asked, found, strict=True) if at is not None}


async def _first_timestamp(cluster: Cluster, tp: TopicPartition, wanted: range) -> int | None:
    offset = wanted.start
    while offset < wanted.stop:
        data = await _fetch(cluster, tp, offset)
        reached = offset
        for position, header in iter_headers(data):
            reached = max(reached, header.last_offset + 1)
            if header.is_control or header.last_offset < offset:
                continue
            records = decode_batch(data, position, start_offset=offset)
            if records:
                return records[0].timestamp_ms if records[0].offset < wanted.stop else None
        if reached == offset:
            return None
        offset = reached
    return None


async def _fetch(cluster: Cluster, tp: TopicPartition, offset: int) -> Buffer:
    """What the log has from `offset` on, at least one whole batch; nothing if the offset is not in the log."""
    snapshot = cluster.snapshot
    leader = snapshot.leader(tp)
    if leader == NO_LEADER:
        raise KafkaError.of(snapshot.topic_errors.get(tp.topic, ErrorCode.LEADER_NOT_AVAILABLE), str(tp))
    part = FetchPartition(tp.partition, snapshot.leader_epoch(tp), offset, partition_max_bytes=_FETCH_BYTES)
    topic = FetchTopic(snapshot.topic_id(tp.topic), tp.topic, (part,))
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=_FETCH_BYTES, session_epoch=-1, topics=(topic,))
    answer: FetchResponse = await cluster.request(leader, ApiKey.FETCH, request)
    if answer.error_code:
        raise KafkaError.of(answer.error_code, str(tp))
    for responded in answer.responses:
        for p in responded.partitions:
            if p.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return b""
            if p.error_code:
                raise KafkaError.of(p.error_code, str(tp))
            return p.records or b""
    raise IncompleteAnswerError(f"broker {leader} says nothing about {tp}")
