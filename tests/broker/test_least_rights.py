"""The ACLs that docs/security.md names are enough for each kind of client, and none of them is too many."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from ottla import AsyncConsumer, AsyncProducer, ClientError, exactly_once
from ottla.broker.access.acls import Acl
from ottla.testing import AsyncBroker
from ottla.wire.acls import AclOperation, ResourceType
from tests.broker.guarded import GUARDED, allow_only, allowed, make_topics
from tests.broker.wire_client import WireClient

_O, _R = AclOperation, ResourceType
_WRITE_OUT = allowed(_O.WRITE, _R.TOPIC, "out")
_READ_IN = allowed(_O.READ, _R.TOPIC, "in")
_READ_GROUP = allowed(_O.READ, _R.GROUP, "g")
_WRITE_TRANSACTION = allowed(_O.WRITE, _R.TRANSACTIONAL_ID, "x")


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    """A broker with an authorizer, and two topics; there is a record in `in`."""
    async with AsyncBroker(GUARDED, data_dir=directory) as running:
        async with WireClient(running) as client:
            await make_topics(running, client, "in", "out")
        await allow_only(running, [allowed(_O.WRITE, _R.TOPIC, "in")])
        async with AsyncProducer({"bootstrap.servers": running.bootstrap_servers}) as producer:
            await (await producer.send("in", b"1"))
        yield running


async def _produce(servers: str) -> None:
    async with AsyncProducer({"bootstrap.servers": servers}) as producer:
        await (await producer.send("out", b"1"))


async def _produce_in_a_transaction(servers: str) -> None:
    async with AsyncProducer({"bootstrap.servers": servers, "transactional.id": "x"}) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("out", b"1")
        await producer.commit_transaction()


async def _consume(servers: str) -> None:
    config = {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    async with AsyncConsumer(config) as consumer:
        consumer.subscribe(["in"])
        async for _ in consumer:
            break
        await consumer.commit()


async def _exactly_once(servers: str) -> None:
    async with exactly_once("in", "out", "x", {"bootstrap.servers": servers, "group.id": "g"}, until_end=True) as work:
        async for batch in work:
            for record in batch:
                await batch.send(record.value)


@pytest.mark.parametrize(
    ("work", "needed"),
    [
        (_produce, [_WRITE_OUT]),
        (_produce_in_a_transaction, [_WRITE_TRANSACTION, _WRITE_OUT]),
        (_consume, [_READ_GROUP, _READ_IN]),
        (_exactly_once, [_READ_GROUP, _READ_IN, _WRITE_TRANSACTION, _WRITE_OUT]),
    ],
    ids=["producer", "transactions", "consumer", "exactly once"],
)
async def test_a_client_needs_these_acls_and_each_of_them(
    broker: AsyncBroker, work: Callable[[str], Awaitable[None]], needed: list[Acl]
) -> None:
    for left_out in needed:
        await allow_only(broker, [each for each in needed if each != left_out])
        with pytest.raises(ClientError) as refused:
            await work(broker.bootstrap_servers)
        assert "AUTHORIZATION_FAILED" in f"{refused.value} {refused.value.__cause__}", left_out
    await allow_only(broker, needed)
    await work(broker.bootstrap_servers)
