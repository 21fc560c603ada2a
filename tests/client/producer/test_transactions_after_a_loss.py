"""A transaction whose batch was lost on the wire can be aborted, and then the next one begins without a trace of it."""

import asyncio
from contextlib import suppress

import pytest

from ottla import AsyncProducer, ConsumerGroupMetadata, OffsetAndMetadata, RequestTimeoutError, TopicPartition
from ottla.base.errors import OttlaError
from ottla.wire.apis import ApiKey
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from tests.client.conftest import Watchdog
from tests.client.fake_kafka import Asked
from tests.client.scripted_broker import (
    Answer,
    HangUpError,
    Hold,
    ScriptedBroker,
    Step,
    Usual,
    hang_up,
    instead,
    lose_answer,
    silence,
)

_CONFIG: dict[str, object] = {"transactional.id": "id"}


async def abort_while_a_batch_is_lost(producer: AsyncProducer, held: Hold) -> None:
    """Abort while the batch that `held` has got is on the wire; then it is lost."""
    await held.reached.wait()
    aborting = asyncio.create_task(producer.abort_transaction())
    await asyncio.sleep(0)
    held.release()
    await aborting


@pytest.mark.parametrize(
    ("transaction_version", "how"),
    [
        pytest.param(2, hang_up, id="epoch per transaction, not written"),
        pytest.param(2, lose_answer, id="epoch per transaction, written"),
        pytest.param(1, hang_up, id="first protocol, not written"),
        pytest.param(1, lose_answer, id="first protocol, written"),
    ],
)
@pytest.mark.parametrize("before", [0, 1])
async def test_a_batch_lost_before_an_abort_does_not_fail_the_next_transaction(
    watchdog: Watchdog, transaction_version: int, how: Step, before: int
) -> None:
    async with (
        watchdog(),
        ScriptedBroker({"t": 1}, transaction_version=transaction_version) as broker,
        broker.producer(_CONFIG) as producer,
    ):
        await producer.init_transactions()
        await producer.begin_transaction()
        for _ in range(before):
            await (await producer.send("t", b"before"))
        held = Hold(how)
        broker.script(ApiKey.PRODUCE, held)
        lost = await producer.send("t", b"lost")
        await abort_while_a_batch_is_lost(producer, held)
        with pytest.raises(Exception, match=r"not committed|lost"):
            await lost
        await producer.begin_transaction()
        delivery = await producer.send("t", b"next")
        await producer.commit_transaction()
        await delivery
        assert broker.kafka.log("t").values()[-1] == b"next"


async def test_a_batch_that_timed_out_does_not_fail_the_transaction_after_the_abort(watchdog: Watchdog) -> None:
    config = {**_CONFIG, "request.timeout.ms": 20, "delivery.timeout.ms": 20}
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer(config) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        broker.script(ApiKey.PRODUCE, silence)
        with pytest.raises(RequestTimeoutError):
            await (await producer.send("t", b"lost"))
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"next")
        await producer.commit_transaction()
        assert broker.kafka.log("t").values() == [b"next"]


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE, ApiKey.END_TXN])
@pytest.mark.parametrize(
    "step", [hang_up, lose_answer, instead(b"\0\0\0\2hi")], ids=["not heard", "answer lost", "garbage"]
)
@pytest.mark.parametrize("transaction_version", [1, 2])
async def test_a_commit_goes_on_after_any_loss_and_writes_once(
    watchdog: Watchdog, api: ApiKey, step: Step, transaction_version: int
) -> None:
    async with (
        watchdog(),
        ScriptedBroker({"t": 1}, transaction_version=transaction_version) as broker,
        broker.producer(_CONFIG) as producer,
    ):
        broker.script(api, step)
        await producer.init_transactions()
        for value in (b"1", b"2"):
            async with producer.transaction():
                await producer.send("t", value)
        assert broker.kafka.log("t").values() == [b"1", b"2"]


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.END_TXN])
async def test_a_commit_that_is_broken_off_can_be_repeated(watchdog: Watchdog, api: ApiKey) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer(_CONFIG) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        held = Hold()
        broker.script(api, held)
        await producer.send("t", b"v")
        committing = asyncio.create_task(producer.commit_transaction())
        await held.reached.wait()
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        held.release()
        await producer.commit_transaction()
        assert broker.kafka.log("t").values() == [b"v"]


async def test_an_abort_does_not_fence_its_producer_when_the_transaction_has_begun_unheard(watchdog: Watchdog) -> None:
    """Kafka 3.x fences who asks for the next epoch while its transaction is open."""
    begun, heard = asyncio.Event(), asyncio.Event()

    async def unheard(asked: Asked, usual: Usual) -> Answer:
        await usual()
        begun.set()
        await heard.wait()
        raise HangUpError

    offsets, group = {TopicPartition("in", 0): OffsetAndMetadata(7)}, ConsumerGroupMetadata("g")
    async with (
        watchdog(),
        ScriptedBroker({"t": 1}, transaction_version=1) as broker,
        broker.producer(_CONFIG) as producer,
    ):
        broker.script(ApiKey.ADD_OFFSETS_TO_TXN, unheard)
        await producer.init_transactions()
        await producer.begin_transaction()
        offering = asyncio.create_task(producer.send_offsets_to_transaction(offsets, group))
        await begun.wait()
        offering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await offering
        heard.set()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"next")
        assert broker.kafka.log("t").values() == [b"next"]


async def test_an_identity_that_is_none_is_not_taken_for_one(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer(_CONFIG) as producer:
        broker.script(ApiKey.INIT_PRODUCER_ID, instead(InitProducerIdResponse(0, 0, -1, -1)))
        with suppress(OttlaError):
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("t", b"v")
