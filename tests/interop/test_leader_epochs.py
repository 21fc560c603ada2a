"""What Apache Kafka says of leader epochs behind kill -9, and what we say: the same, in the epoch that each has then.

It has two more behind each restart (docs/differences.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import fetch as f
from ottla.wire.messages import list_offsets as o
from ottla.wire.messages import metadata as m
from ottla.wire.messages import offset_for_leader_epoch as e
from tests.broker.records_io import until_led
from tests.broker.wire_client import WireClient
from tests.interop.apache import ApacheKafka

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

_RECORDS = 3


def _fill(bootstrap: str) -> None:
    """Topics `t`, with records, and `empty`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic("t", 1, 1), NewTopic("empty", 1, 1)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(_RECORDS):
        producer.produce("t", b"x")
        producer.flush()


class _Asking:
    """Questions about partition 0 of a topic."""

    def __init__(self, client: WireClient) -> None:
        self._ask = client.ask

    async def leader(self, topic: str) -> tuple[bytes, int]:
        """The topic's id, and its leader's epoch."""
        answer = await self._ask(ApiKey.METADATA, m.MetadataRequest((m.MetadataRequestTopic(name=topic),)), 12)
        return answer.topics[0].topic_id, answer.topics[0].partitions[0].leader_epoch

    async def end_of(self, topic: str, epoch: int, current: int = -1) -> tuple[ErrorCode, int, int]:
        asked = e.OffsetForLeaderTopic(topic, (e.OffsetForLeaderPartition(0, current, epoch),))
        answer = await self._ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, e.OffsetForLeaderEpochRequest(-1, (asked,)), 4)
        part = answer.topics[0].partitions[0]
        return ErrorCode(part.error_code), part.leader_epoch, part.end_offset

    async def fetched(self, topic: str, current: int, last: int = -1) -> tuple[ErrorCode, tuple[int, int]]:
        """The error, and where the logs part for a reader that has read up to their end."""
        topic_id, _ = await self.leader(topic)
        part = f.FetchPartition(0, current, _RECORDS, last, partition_max_bytes=1_000)
        request = f.FetchRequest(max_wait_ms=0, max_bytes=1_000, session_epoch=-1)
        request = request._replace(topics=(f.FetchTopic(topic_id, "", (part,)),))
        found = (await self._ask(ApiKey.FETCH, request, 13)).responses[0].partitions[0]
        return ErrorCode(found.error_code), tuple(found.diverging_epoch)

    async def listed(self, topic: str, timestamp: int) -> tuple[int, int]:
        asked = o.ListOffsetsTopic(topic, (o.ListOffsetsPartition(0, -1, timestamp),))
        answer = await self._ask(ApiKey.LIST_OFFSETS, o.ListOffsetsRequest(-1, 0, (asked,)), 7)
        return answer.topics[0].partitions[0].offset, answer.topics[0].partitions[0].leader_epoch


async def _said(broker: Any) -> tuple[int, dict[str, Any]]:
    """The leaders' epoch, and what is said of it; epochs by their distance to it."""
    async with WireClient(broker) as client:
        for topic in ("t", "empty"):
            await until_led(client, topic)
        ask = _Asking(client)
        (_, now), (_, of_empty) = await ask.leader("t"), await ask.leader("empty")
        assert of_empty == now
        ends = {
            f"{topic} {epoch - now}": (error, said if said < 0 else said - now, end)
            for topic in ("t", "empty")
            for epoch in (now - 1, now, now + 1)
            for error, said, end in [await ask.end_of(topic, epoch)]
            if epoch >= 0
        }
        first = {f"{topic} of the first": (await ask.end_of(topic, 0))[2] for topic in ("t", "empty")}
        known = {
            f"known {away}": [(await ask.end_of("t", 0, now + away))[0], (await ask.fetched("t", now + away))[0]]
            for away in (-1, 0, 1)
        }
        parted = {
            "read now": await ask.fetched("t", now, now),
            "read later": (await ask.fetched("t", now, now + 1))[0],
        }
        offset, epoch = await ask.listed("t", -1)
        listed = {"latest": (offset, epoch - now), "earliest": await ask.listed("t", -2)}
        return now, {**ends, **first, **known, **parted, **listed}


def _both(broker: Any, kill: Callable[[], None], bootstrap: str) -> list[tuple[int, dict[str, Any]]]:
    _fill(bootstrap)
    before = asyncio.run(_said(broker))
    kill()
    broker.start()
    return [before, asyncio.run(_said(broker))]


def test_of_leader_epochs_we_say_behind_a_kill_what_apache_kafka_says(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "apache") as kafka:
        theirs = _both(kafka, kafka.kill9, kafka.bootstrap)
    with Broker() as broker:
        ours = _both(broker, broker.kill, broker.bootstrap_servers)
    assert [epoch for epoch, _ in theirs] == [0, 2]
    assert [epoch for epoch, _ in ours] == [0, 1]
    for (_, their), (now, our) in zip(theirs, ours, strict=True):
        of_no_leader = set() if now == 0 else {"t -1"}  # they have had one epoch without a leader in between
        assert {name: said for name, said in our.items() if name not in of_no_leader} == {
            name: said for name, said in their.items() if name not in of_no_leader
        }
    assert ours[1][1]["t of the first"] == _RECORDS
