"""A handle is not lost when the caller of `detach_transaction` is cancelled: it is given to the next call."""

import asyncio

import pytest

from ottla import AsyncAdmin, AsyncProducer, TransactionOutcome
from ottla.client.core.producer.handle import TransactionHandle
from ottla.client.errors import IllegalStateError
from ottla.testing import AsyncBroker

_MOST_TURNS = 500


async def _detached_after(producer: AsyncProducer, turns: int) -> TransactionHandle | None:
    """Its handle if it has one after so many turns of the loop; else its caller is cancelled."""
    detaching = asyncio.ensure_future(producer.detach_transaction())
    for _ in range(turns):
        await asyncio.sleep(0)
    detaching.cancel()
    try:
        return await detaching
    except asyncio.CancelledError:
        return None


async def test_t15_a_handle_whose_caller_was_cancelled_is_given_again() -> None:
    async with AsyncBroker({"transaction.two.phase.commit.enable": True}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        await broker.node.transactions.ready()
        await broker.node.topics.create("t", 1, {})
        detached = 0
        for turns in range(_MOST_TURNS):
            async with AsyncProducer({**settings, "transactional.id": "x"}) as producer:
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send("t", b"v")
                handle = await _detached_after(producer, turns)
                again = await producer.detach_transaction()
                assert handle in (None, again)
                with pytest.raises(IllegalStateError):
                    await producer.begin_transaction()
            async with AsyncAdmin(settings) as admin:
                assert await admin.end_transaction(again, commit=True) is TransactionOutcome.ENDED
            detached += handle is not None
            if detached == 2:
                return
        pytest.fail("it was cancelled every time")
