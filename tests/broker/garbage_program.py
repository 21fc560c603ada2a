"""A process of its own, with a broker in it: prints what the broker leaves to the full garbage collection, as JSON."""

from __future__ import annotations

import gc
import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from types import FunctionType

import uvloop

from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker import four_listeners
from tests.broker.fuzzing import anything
from tests.broker.say_who import say_who
from tests.broker.wire_client import WireClient, batch

#: How often nonsense is said to a listener.
_TIMES = 100
#: With their partitions the shards end that coordinate groups and transactions.
_COORDINATED = tuple(DeleteTopicState(name) for name in ("__consumer_offsets", "__transaction_state"))
_OURS = ("ottla.broker.", "ottla.log.", "ottla.coordinator.", "ottla.wire.")


async def _everything(client: WireClient, group_id: str) -> None:
    """A topic's life, with records, a group and a transactional id."""
    topics = (CreatableTopic("t", 3, 1), CreatableTopic("c", 3, 1))
    await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics, 10_000))
    await client.ask(ApiKey.METADATA, MetadataRequest((MetadataRequestTopic(name="auto"),)))
    data = (PartitionProduceData(0, batch(b"a", b"b")), PartitionProduceData(7, batch(b"a")))
    request = ProduceRequest(None, -1, 10_000, (TopicProduceData(name="t", partition_data=data),))
    await client.ask(ApiKey.PRODUCE, request, 12)
    wanted = (FetchTopic(topic="t", partitions=(FetchPartition(0, partition_max_bytes=1_000),)),)
    await client.ask(ApiKey.FETCH, FetchRequest(min_bytes=1, topics=wanted), 12)
    await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    protocols = (JoinGroupRequestProtocol("range", b""),)
    await client.ask(ApiKey.JOIN_GROUP, JoinGroupRequest(group_id, 10_000, 10_000, "", None, "consumer", protocols), 3)
    doomed = tuple(DeleteTopicState(name) for name in ("t", "c", "auto"))
    await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(doomed, timeout_ms=10_000))


async def _refused_quotas(client: WireClient) -> None:
    """Many in one request: they grow old before it is answered."""
    wanted = (OpData("producer_byte_rate", 1.0, False),)
    entries = tuple(EntryData((EntityData("no such type", f"{n}"),), wanted) for n in range(3_000))
    await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(entries, validate_only=False))


async def _nonsense(broker: AsyncBroker, rng: random.Random) -> None:
    """To every listener, before and after authentication; where TLS is expected it ends the handshake."""
    for protocol in four_listeners.PROTOCOLS:
        for is_known in (False, True) if protocol.startswith("SASL") and not protocol.endswith("SSL") else (False,):
            for _ in range(_TIMES):
                async with WireClient(_Address(broker, protocol)) as client:
                    try:
                        if is_known:
                            await say_who(client)
                        await client.send_bytes(anything(rng))
                        await client.drained()
                    except OSError:  # it was closed before it had said everything
                        continue


class _Address:
    """Where a protocol is spoken."""

    def __init__(self, broker: AsyncBroker, protocol: str) -> None:
        self.host, _, port = broker.listener(protocol).rpartition(":")
        self.port = int(port)


async def _say_wrongly(client: WireClient) -> None:
    """A client that is not let in."""
    await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"))
    await client.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(b"\0alice\0wrong-hunter2"))


async def _left(directory: Path) -> Counter[str]:
    four_listeners.make_certificates(directory)
    async with AsyncBroker(four_listeners.settings(directory)) as broker:
        await broker.node.groups.ready()
        await broker.node.transactions.ready()
        gc.collect()
        gc.disable()
        for group_id in "gh":
            async with WireClient(broker) as client:
                await _everything(client, group_id)
        for say in (say_who, _say_wrongly):
            async with WireClient(_Address(broker, "SASL_PLAINTEXT")) as client:
                await say(client)
        async with WireClient(broker) as client:
            await _refused_quotas(client)
        await _nonsense(broker, random.Random(1))
        async with WireClient(broker) as client:
            await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(_COORDINATED, timeout_ms=10_000))
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(map(_name, gc.garbage))


def _name(found: object) -> str:
    """A function's own, which others made like it have, too; of all else that of its class."""
    named = found if isinstance(found, FunctionType) else type(found)
    return f"{named.__module__}.{named.__qualname__}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ottla-garbage-") as name:
        left = uvloop.run(_left(Path(name)))
    print(json.dumps({name: count for name, count in left.items() if name.startswith(_OURS)}))
