"""Makes transactions that hang, as a client does that writes without telling the coordinator (KIP-890 prevents it).

The broker must run with `UNVERIFIED`: it then believes every batch that says it belongs to a transaction.
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla import TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import produce as p
from ottla.wire.messages import txn_offset_commit as o
from tests.broker.wire_client import WireClient, batch

UNVERIFIED: Final = {"transaction.partition.verification.enable": "false"}
#: When the first record was written, by its timestamp.
SINCE_MS: Final = 1_700_000_000_000
#: Before KIP-890 a partition had to be added by AddPartitionsToTxn, and Produce added none.
_PRODUCE, _TXN_OFFSET_COMMIT = 9, 3
_WAIT_S: Final = 60.0
#: Far above those that a coordinator gives out in a test.
_UNKNOWN_IDS = itertools.count(9_000_000)


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    @classmethod
    def of(cls, servers: str) -> "Address":
        host, _, port = servers.rpartition(":")
        return cls(host, int(port))


class Hanging(NamedTuple):
    """Who has left it."""

    producer_id: int
    producer_epoch: int


def nobody() -> Hanging:
    """A producer that no coordinator knows."""
    return Hanging(next(_UNKNOWN_IDS), 0)


def leave_hanging(servers: str, tp: TopicPartition, *values: bytes, by: Hanging | None = None) -> Hanging:
    """Write records of a transaction into a partition that is not in any transaction of the coordinator."""
    producer = by or nobody()
    records = batch(*values, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True)
    data = (p.TopicProduceData(name=tp.topic, partition_data=(p.PartitionProduceData(tp.partition, records),)),)
    request = p.ProduceRequest("hanging", -1, 10_000, data)
    _done(servers, ApiKey.PRODUCE, request, _PRODUCE, lambda answer: answer.responses[0].partition_responses[0])
    return producer


def leave_offsets_hanging(servers: str, group: str, tp: TopicPartition, offset: int) -> Hanging:
    """Commit an offset in a transaction to which the group's partition of `__consumer_offsets` was not added."""
    producer = nobody()
    partitions = (o.TxnOffsetCommitRequestPartition(tp.partition, offset),)
    topics = (o.TxnOffsetCommitRequestTopic(tp.topic, partitions),)
    request = o.TxnOffsetCommitRequest("hanging", group, *producer, topics=topics)
    _done(servers, ApiKey.TXN_OFFSET_COMMIT, request, _TXN_OFFSET_COMMIT, lambda answer: answer.topics[0].partitions[0])
    return producer


def _done(servers: str, api: ApiKey, request: tuple[Any, ...], version: int, part: Callable[[Any], Any]) -> None:
    """Ask until it is done: a topic that was just made may not have its leader yet."""

    async def ask() -> ErrorCode:
        async with WireClient(Address.of(servers)) as client:
            until = time.monotonic() + _WAIT_S
            while True:
                code = ErrorCode(part(await client.ask(api, request, version)).error_code)
                if not code.retriable or time.monotonic() > until:
                    return code

    assert asyncio.run(ask()) == ErrorCode.NONE
