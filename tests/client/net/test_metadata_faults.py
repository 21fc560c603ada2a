"""What breaks the client's look at the cluster is told to whoever waits, or survived; nobody waits in silence.

What is waited for here would come within milliseconds; the limits of the calls are a minute.
"""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from ottla import AsyncAdmin, AsyncProducer
from ottla.base.errors import OttlaError
from ottla.wire.apis import ApiKey
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponsePartition
from tests.client.blame import chain
from tests.client.conftest import Watchdog
from tests.client.fake_kafka import Asked
from tests.client.scripted_broker import Answer, HangUpError, ScriptedBroker, Usual, changed

_LONGEST_STRING = 32_767
_TOO_LONG = "x" * (_LONGEST_STRING + 1)


def gap_in_partitions(answer: MetadataResponse) -> MetadataResponse:
    """Topic `t` has partition 7, and no other."""
    far = MetadataResponsePartition(0, 7, 1, 0, (1,), (1,))
    return answer._replace(
        topics=tuple(topic._replace(partitions=(far,)) if topic.name == "t" else topic for topic in answer.topics)
    )


async def refuses_long_strings(asked: Asked, usual: Usual) -> Answer:
    """As Apache Kafka: a string that is too long cannot be read, and ends the connection."""
    if any(len(topic.name) > _LONGEST_STRING for topic in asked.message.topics or ()):
        raise HangUpError
    return await usual()


async def delivered(producer: AsyncProducer, topic: str) -> None:
    await (await producer.send(topic, b"v"))


async def told(work: Coroutine[None, None, None]) -> bool:
    """Whether `work` raised something that says more than that time has passed; False when it succeeded."""
    try:
        await work
    except OttlaError as error:
        assert any(not isinstance(one, TimeoutError) for one in chain(error))
        return True
    return False


async def test_an_answer_that_cannot_be_taken_in_is_told(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1, "good": 1}) as broker, broker.producer() as producer:
        broker.always(ApiKey.METADATA, changed(gap_in_partitions))
        assert await told(delivered(producer, "t"))
        await told(delivered(producer, "good"))  # it may succeed


async def test_an_answer_that_cannot_be_taken_in_is_told_to_all_who_wait(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer() as producer:
        broker.always(ApiKey.METADATA, changed(gap_in_partitions))
        assert await asyncio.gather(*(told(delivered(producer, "t")) for _ in range(3))) == [True] * 3


async def test_a_partition_that_is_missing_once_ends_nothing_in_silence(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 8}) as broker, broker.producer() as producer:
        broker.script(ApiKey.METADATA, changed(gap_in_partitions))
        await told(delivered(producer, "t"))
        await told(delivered(producer, "t"))


async def test_a_producers_topic_that_no_broker_reads_is_refused_and_harms_no_other(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"good": 1}) as broker, broker.producer() as producer:
        broker.always(ApiKey.METADATA, refuses_long_strings)
        assert await told(delivered(producer, _TOO_LONG))
        await delivered(producer, "good")


async def test_a_consumers_topic_that_no_broker_reads_is_refused(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"good": 1}) as broker, broker.consumer({"group.id": "g"}) as consumer:
        broker.always(ApiKey.METADATA, refuses_long_strings)
        with pytest.raises(OttlaError):
            consumer.subscribe([_TOO_LONG])
            await consumer.poll(60)


async def test_an_admins_topic_that_no_broker_reads_is_refused_and_harms_no_other(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"good": 1}) as broker, AsyncAdmin(broker.config()) as admin:
        broker.always(ApiKey.METADATA, refuses_long_strings)
        with pytest.raises(OttlaError):
            await admin.describe_topics([_TOO_LONG])
        assert set(await admin.describe_topics(["good"])) == {"good"}


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"bootstrap.servers": "two..dots:9092"}, id="a host that cannot be a name"),
        pytest.param({"bootstrap.servers": f"{'h' * 64}:9092"}, id="a host that is too long"),
        pytest.param({"client.id": _TOO_LONG}, id="a client.id that is too long"),
        pytest.param({"client.id": "\ud800"}, id="a client.id that is no text"),
    ],
)
@pytest.mark.parametrize("client", [AsyncProducer, AsyncAdmin])
async def test_a_configuration_with_which_nobody_can_be_reached_is_told_with_its_cause(
    watchdog: Watchdog, config: dict[str, object], client: Callable[[dict[str, object]], AsyncProducer | AsyncAdmin]
) -> None:
    """At once, or when the call's own time is over: but with what is wrong."""

    async def use() -> None:
        made = client(broker.config({**limits, **config}))
        try:
            if isinstance(made, AsyncProducer):
                await made.send("good", b"v")
            else:
                await made.list_topics()
        finally:
            await made.close()

    limits = {"max.block.ms": 50} if client is AsyncProducer else {"default.api.timeout.ms": 50}
    async with watchdog(), ScriptedBroker({"good": 1}) as broker:
        assert await told(use())


async def test_a_client_whose_metadata_failed_can_be_closed(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker:
        producer = AsyncProducer(broker.config())
        broker.always(ApiKey.METADATA, changed(gap_in_partitions))
        sending = asyncio.create_task(delivered(producer, "t"))
        await broker.saw(ApiKey.METADATA, 1)
        await producer.close(0)
        await asyncio.wait({sending})
        assert isinstance(sending.exception(), OttlaError)
