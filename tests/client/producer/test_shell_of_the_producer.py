"""The producer's shell: what goes wrong between core and socket, and calls that end while others wait."""

import asyncio
import random
from typing import Any

import pytest

from ottla import AsyncProducer, Delivery
from ottla.client.errors import AbortableTransactionError, IllegalStateError, InternalError, RequestTimeoutError
from ottla.client.net.cluster import Cluster
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import ProduceResponse
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import Hold, ScriptedBroker, changed


async def test_a_shared_cluster_that_is_closed_first_does_not_keep_the_loop_busy(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker:
        config = broker.config({"linger.ms": 0, "request.timeout.ms": 2_000, "delivery.timeout.ms": 2_000})
        cluster = Cluster(AsyncProducer(config).config, random.Random(1), auto_create_topics=True)
        producer = AsyncProducer(config, cluster=cluster)
        await (await producer.send("t", b"v"))
        await cluster.close()
        delivery = await producer.send("t", b"v")
        await asyncio.sleep(0)
        await producer.close(0)
        assert isinstance(delivery.exception(), IllegalStateError), "the time of the record has not passed yet"


# a fault of the client's own


class FaultyRandom(random.Random):
    """Chance that cannot be asked for a pause: whoever wants to repeat something meets a fault."""

    def uniform(self, a: float, b: float) -> float:
        raise ZeroDivisionError


def second_partition_has_moved(answer: ProduceResponse) -> ProduceResponse:
    [topic] = answer.responses
    first, second = topic.partition_responses
    second = second._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1)
    return answer._replace(responses=(topic._replace(partition_responses=(first, second)),))


async def test_what_was_decided_before_a_fault_is_told_and_all_is_told_once(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 2}) as broker:
        producer = AsyncProducer(broker.config({"linger.ms": 60_000}), rng=FaultyRandom(1))
        broker.script(ApiKey.PRODUCE, changed(second_partition_has_moved))
        told: list[Delivery] = []
        acknowledged, open_ = [
            await producer.send("t", b"v", partition=partition, on_delivery=told.append) for partition in (0, 1)
        ]
        await producer.flush()
        assert (await acknowledged).offset == 0
        assert isinstance(open_.exception(), InternalError)
        await producer.close()
        producer.loop_ended(IllegalStateError("over"))
        assert len(told) == 2


# calls that end while others wait


async def test_a_send_that_waits_for_metadata_ends_with_the_producer(watchdog: Watchdog) -> None:
    async with watchdog():
        producer = AsyncProducer({"bootstrap.servers": "127.0.0.1:9", "retry.backoff.ms": 1, "retry.backoff.max.ms": 1})
        calls: list[Any] = [producer.send("t", b"v"), producer.partitions_for("t")]
        waiting = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        await producer.close()
        for call in waiting:
            with pytest.raises(IllegalStateError, match="closed"):
                await call


@pytest.mark.parametrize("how", ["broken off", "too slow"])
async def test_a_call_that_nobody_waits_for_is_not_made_later(watchdog: Watchdog, how: str) -> None:
    """It would fence the producer, or end a later transaction."""
    config = {"transactional.id": "x", "max.block.ms": 300 if how == "too slow" else 60_000}
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer(config) as producer:
        held = Hold()
        broker.script(ApiKey.FIND_COORDINATOR, held)
        initializing = asyncio.create_task(producer.init_transactions())
        await held.reached.wait()
        if how == "broken off":
            initializing.cancel()
        with pytest.raises(RequestTimeoutError if how == "too slow" else asyncio.CancelledError):
            await initializing
        again = asyncio.create_task(producer.init_transactions())
        await asyncio.sleep(0)
        held.release()
        await again
        async with producer.transaction():
            await producer.send("t", b"v")
        assert len(broker.asked(ApiKey.INIT_PRODUCER_ID)) == 1


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.END_TXN])
async def test_close_waits_for_a_commit_that_has_begun(watchdog: Watchdog, api: ApiKey) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer({"transactional.id": "x"}) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        held = Hold()
        broker.script(api, held)
        await producer.send("t", b"v")
        committing = asyncio.create_task(producer.commit_transaction())
        await held.reached.wait()
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        held.release()
        await closing
        await committing


async def test_a_commit_that_fails_while_the_producer_is_closed_says_why_and_is_aborted(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer({"transactional.id": "x"}) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        held = Hold(changed(refused))
        broker.script(ApiKey.PRODUCE, held)
        await producer.send("t", b"v")
        committing = asyncio.create_task(producer.commit_transaction())
        await held.reached.wait()
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        held.release()
        await closing
        with pytest.raises(AbortableTransactionError):
            await committing
        assert [end.committed for end in broker.asked(ApiKey.END_TXN)] == [False]


def refused(answer: ProduceResponse) -> ProduceResponse:
    [topic] = answer.responses
    [part] = topic.partition_responses
    part = part._replace(error_code=ErrorCode.INVALID_RECORD, base_offset=-1)
    return answer._replace(responses=(topic._replace(partition_responses=(part,)),))
