"""A record that `send` refuses is missing in its transaction, so that can only be aborted, as in Apache Kafka."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from ottla import (
    AbortableTransactionError,
    AsyncProducer,
    BufferExhaustedError,
    RecordTooLargeError,
    RequestTimeoutError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataResponse
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import ScriptedBroker, changed, silence

Send = Callable[[AsyncProducer], Awaitable[object]]
_CONFIG: dict[str, object] = {"transactional.id": "id", "max.block.ms": 1_000, "max.request.size": 1_000}


def _without_others(answer: MetadataResponse) -> MetadataResponse:
    """Only `t` is there."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return answer._replace(
        topics=tuple(
            each if each.name == "t" else each._replace(error_code=code, partitions=()) for each in answer.topics
        )
    )


@pytest.mark.parametrize(
    ("send", "refusal"),
    [
        (lambda producer: producer.send("t", b"x" * 20_000), RecordTooLargeError),
        (lambda producer: producer.send("t", b"x", partition=7), UnknownTopicOrPartitionError),
        (lambda producer: producer.send("nowhere", b"x"), (RequestTimeoutError, UnknownTopicOrPartitionError)),
        (
            lambda producer: producer.send("nowhere", b"x", key=b"k"),
            (RequestTimeoutError, UnknownTopicOrPartitionError),
        ),
    ],
)
async def test_a_transaction_that_misses_a_record_is_not_committed(
    watchdog: Watchdog, send: Send, refusal: type[Exception] | tuple[type[Exception], ...]
) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer(_CONFIG) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send("t", b"written"))
        broker.always(ApiKey.METADATA, changed(_without_others))
        waiting = await producer.send("t", b"waits")
        with pytest.raises(refusal) as refused:
            await send(producer)
        with pytest.raises(AbortableTransactionError) as told:
            await producer.commit_transaction()
        assert told.value.__cause__ is refused.value
        with pytest.raises(AbortableTransactionError):
            await producer.send("t", b"later")
        with suppress(AbortableTransactionError):
            await waiting  # it was written before, or never will be
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"next")
        await producer.commit_transaction()
        assert broker.kafka.log("t").values()[-1] == b"next"


async def test_a_transaction_without_room_for_a_record_is_not_committed(watchdog: Watchdog) -> None:
    config = {**_CONFIG, "buffer.memory": 600, "batch.size": 500}
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer(config) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        broker.script(ApiKey.PRODUCE, silence)
        await producer.send("t", b"x" * 400)
        with pytest.raises(BufferExhaustedError):
            await producer.send("t", b"x" * 400)
        with pytest.raises(AbortableTransactionError, match=r"buffer\.memory"):
            await producer.commit_transaction()


async def test_a_wrong_argument_fails_no_transaction(watchdog: Watchdog) -> None:
    """It is a fault of the caller, who may go on without it; so it is in Apache Kafka."""
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.producer(_CONFIG) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"written")
        for wrong in ({"value": b"x", "timestamp_ms": "soon"}, {"value": b"x", "headers": [1]}, {"value": 12}):
            with pytest.raises((TypeError, SerializationError)):
                await producer.send("t", **wrong)
        await producer.commit_transaction()
        assert broker.kafka.log("t").values() == [b"written"]
