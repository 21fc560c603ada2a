"""Produce and Fetch of topic `t` over a `WireClient`, for tests of what a broker has written; wait for a leader."""

from typing import Any

from ottla.wire.apis import ApiKey
from ottla.wire.codec import NULL_UUID
from ottla.wire.messages import fetch as f
from ottla.wire.messages import list_offsets as o
from ottla.wire.messages import produce as p
from tests.broker.wire_client import WireClient


async def produce(
    client: WireClient,
    *records: bytes | None,
    version: int = 9,
    acks: int = -1,
    topic: str = "t",
    topic_id: bytes = NULL_UUID,
) -> Any:
    """Produce one batch to each partition from 0 on; the answers by partition."""
    data = tuple(p.PartitionProduceData(number, each) for number, each in enumerate(records))
    request = p.ProduceRequest(None, acks, 1000, (p.TopicProduceData(topic_id, topic if version < 13 else "", data),))
    return (await client.ask(ApiKey.PRODUCE, request, version)).responses[0].partition_responses


def fetch_request(offset: int = 0, *, version: int = 11, topic_id: bytes = NULL_UUID, **options: Any) -> f.FetchRequest:
    partition = f.FetchPartition(0, fetch_offset=offset, partition_max_bytes=options.pop("partition_max_bytes", 2**20))
    partition = partition._replace(current_leader_epoch=options.pop("leader_epoch", -1))
    topics = (f.FetchTopic(topic_id, "t" if version < 13 else "", (partition,)),)
    defaults: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**20, "session_epoch": -1}
    return f.FetchRequest(topics=topics, **{**defaults, **options})


async def fetch(client: WireClient, offset: int = 0, *, version: int = 11, **options: Any) -> Any:
    """Fetch partition 0; its part of the answer."""
    answer = await client.ask(ApiKey.FETCH, fetch_request(offset, version=version, **options), version)
    return answer.responses[0].partitions[0]


async def until_led(client: WireClient, topic: str, partitions: int = 1) -> None:
    """Return when each partition has a leader that knows it is one.

    Apache Kafka tells a new topic's leader in its metadata before that leader takes records: NOT_LEADER_OR_FOLLOWER.
    """
    latest = tuple(o.ListOffsetsPartition(number, timestamp=-1) for number in range(partitions))
    asked = o.ListOffsetsRequest(-1, topics=(o.ListOffsetsTopic(topic, latest),))
    unled = True
    while unled:
        (answer,) = (await client.ask(ApiKey.LIST_OFFSETS, asked)).topics
        unled = any(each.error_code for each in answer.partitions)
