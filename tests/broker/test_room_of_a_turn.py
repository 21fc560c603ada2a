"""What all connections together have carried out at once in one turn of the loop: hundreds may send in the same."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ottla.base.errors import CorruptDataError
from ottla.base.limits import FEW_ELEMENTS, FRAME_BYTES_AT_ONCE, SMALL_FRAME_BYTES
from ottla.broker.answers import Answer, Later
from ottla.broker.handlers.dispatch import Dispatcher
from ottla.broker.runtime.slices import TURN_MS
from ottla.broker.session import Session
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.frames import encode_request
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.ticking import TickingClock, steps, turns

_CONNECTIONS = 20
_BYTES = FRAME_BYTES_AT_ONCE // 4 + 1


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(clock=TickingClock()) as running:
        yield running


def _frame(key: ApiKey, request: tuple[object, ...], version: int, size_bytes: int = 0) -> bytes:
    """What is behind a request counts, and is not read."""
    return encode_request(key, version, 1, "c", request)[4:].ljust(size_bytes, b"\0")


def _ask(broker: AsyncBroker, frame: bytes) -> list[Answer]:
    """The same from each of so many connections, in one turn."""
    dispatch = Dispatcher(broker.node)
    return [dispatch(frame, Session("PLAINTEXT", "/127.0.0.1")) for _ in range(_CONNECTIONS)]


def _later(answers: list[Answer]) -> list[Later]:
    return [each for each in answers if isinstance(each, Later)]


_FEW_RESOURCES = DescribeConfigsRequest((DescribeConfigsResource(2, "t", ()),))
_ONE_PARTITION = FetchRequest(topics=(FetchTopic(topic="t", partitions=(FetchPartition(0),)),))


@pytest.mark.parametrize(
    ("key", "request_", "version"),
    [
        (ApiKey.DESCRIBE_CONFIGS, _FEW_RESOURCES, 4),
        (ApiKey.FETCH, _ONE_PARTITION, 12),
    ],
)
async def test_requests_of_many_connections_have_the_room_of_one(
    broker: AsyncBroker, key: ApiKey, request_: tuple[object, ...], version: int
) -> None:
    asked = _ask(broker, _frame(key, request_, version, _BYTES))
    later = _later(asked)
    assert len(asked) - len(later) == FRAME_BYTES_AT_ONCE // _BYTES
    assert asked[-1] is later[-1]
    every = asyncio.create_task(asyncio.wait([each.future for each in later]))
    seen = await turns(every, lambda: sum(each.future.done() for each in later))
    assert max(steps(seen)) == 1
    assert not _later(_ask(broker, _frame(key, request_, version, _BYTES))[: FRAME_BYTES_AT_ONCE // _BYTES])


async def test_small_requests_need_no_room(broker: AsyncBroker) -> None:
    _ask(broker, _frame(ApiKey.DESCRIBE_CONFIGS, _FEW_RESOURCES, 4, _BYTES))
    assert not _later(_ask(broker, _frame(ApiKey.DESCRIBE_CONFIGS, _FEW_RESOURCES, 4, SMALL_FRAME_BYTES)))


async def test_a_produce_of_very_many_names_is_decoded_in_steps(broker: AsyncBroker) -> None:
    """Its bytes do not say so: they may be records. A hundred elements are a step."""
    data = tuple(PartitionProduceData(index, b"") for index in range(20 * FEW_ELEMENTS))
    whole = _frame(
        ApiKey.PRODUCE, ProduceRequest(None, 1, 1_000, (TopicProduceData(name="t", partition_data=data),)), 12
    )
    answer = Dispatcher(broker.node)(whole[:-4], Session("PLAINTEXT", "/127.0.0.1"))
    assert isinstance(answer, Later)
    seen = await turns(asyncio.ensure_future(answer.future), lambda: 0)
    assert len(seen) > 20 * FEW_ELEMENTS / 100 / TURN_MS
    fault = answer.future.result()
    assert isinstance(fault, CorruptDataError)
    assert "ProduceRequest v12" in str(fault)
    assert "client id 'c'" in str(fault)


async def test_a_produce_of_records_is_decoded_at_once(broker: AsyncBroker) -> None:
    data = (PartitionProduceData(0, bytes(2 * FRAME_BYTES_AT_ONCE)),)
    request = ProduceRequest(None, 1, 1_000, (TopicProduceData(name="t", partition_data=data),))
    assert not _later(_ask(broker, _frame(ApiKey.PRODUCE, request, 12)))
