"""A transaction whose batch was lost on the wire can be aborted, and then the next one begins without a trace of it."""

import asyncio

import pytest

from ottla import AsyncProducer, RequestTimeoutError
from ottla.wire.apis import ApiKey
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import Hold, ScriptedBroker, Step, hang_up, lose_answer, silence

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
