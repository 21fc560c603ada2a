"""A process of its own, with a broker in it: prints what the broker leaves to the full garbage collection, as JSON."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter

from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire_client import WireClient, batch

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


class _Address:
    """Where SASL is spoken."""

    def __init__(self, broker: AsyncBroker) -> None:
        self.host, _, port = broker.listener("SASL_PLAINTEXT").rpartition(":")
        self.port = int(port)


async def _say_who(client: WireClient, password: bytes) -> None:
    """A client that is let in, or, with another password, is not."""
    await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"))
    await client.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(b"\0alice\0" + password))


_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="right-hunter2";'
_CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
}


async def _left() -> Counter[str]:
    async with AsyncBroker(_CONFIG) as broker:
        await broker.node.groups.ready()
        await broker.node.transactions.ready()
        gc.collect()
        gc.disable()
        for group_id in "gh":
            async with WireClient(broker) as client:
                await _everything(client, group_id)
        for password in (b"right-hunter2", b"wrong-hunter2"):
            async with WireClient(_Address(broker)) as client:
                await _say_who(client, password)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)


if __name__ == "__main__":
    print(json.dumps({name: count for name, count in asyncio.run(_left()).items() if name.startswith(_OURS)}))
