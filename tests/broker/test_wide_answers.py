"""What is left to do when the answer to a request of very many partitions is ready: little, for that is one turn."""

from collections.abc import AsyncIterator
from pathlib import Path
from sys import getallocatedblocks

import pytest

from ottla.broker.answers import Answer, Later
from ottla.broker.handlers.dispatch import Dispatcher
from ottla.broker.outbox import Piece
from ottla.broker.session import Session
from ottla.log.storage import Slice
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.frames import encode_request
from ottla.wire.messages import fetch as f
from ottla.wire.messages import list_offsets as lo
from ottla.wire.messages import offset_for_leader_epoch as ol
from tests.broker.ticking import TickingClock

_MANY = 3_000
_REQUESTS = {
    ApiKey.LIST_OFFSETS: lo.ListOffsetsRequest(
        -1, topics=(lo.ListOffsetsTopic("t", tuple(lo.ListOffsetsPartition(at, timestamp=-1) for at in range(_MANY))),)
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ol.OffsetForLeaderEpochRequest(
        -1, (ol.OffsetForLeaderTopic("t", tuple(ol.OffsetForLeaderPartition(at, -1, 0) for at in range(_MANY))),)
    ),
}


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(data_dir=directory, clock=TickingClock()) as running:
        await running.node.topics.create("t", 1, {})
        yield running


def _asked(broker: AsyncBroker, key: ApiKey, version: int, request: tuple[object, ...]) -> Answer:
    frame = encode_request(key, version, 1, "x", request)[4:]
    return Dispatcher(broker.node)(frame, Session("PLAINTEXT", "/127.0.0.1"))


def _size_bytes(piece: Piece) -> int:
    return piece.length_bytes if isinstance(piece, Slice) else len(piece)


@pytest.mark.parametrize("key", list(_REQUESTS))
async def test_an_answer_of_many_partitions_that_was_made_in_parts_is_encoded_in_slices(
    broker: AsyncBroker, key: ApiKey
) -> None:
    """One topic of 29,000 partitions was one short array, and took 20 ms of one turn."""
    answer = _asked(broker, key, 4, _REQUESTS[key])
    assert isinstance(answer, Later)
    answer = answer.encode(await answer.future)
    assert isinstance(answer, Later)
    whole = answer.encode(await answer.future)
    assert isinstance(whole, list)
    assert sum(map(_size_bytes, whole)) > 10 * _MANY


@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_what_a_fetch_of_many_partitions_has_read_is_freed_before_it_is_sent(
    broker: AsyncBroker, session_epoch: int
) -> None:
    """29,000 partitions took 10 ms of the turn that sent the answer."""
    wanted = tuple(f.FetchPartition(at, partition_max_bytes=1_000) for at in range(_MANY))
    request = f.FetchRequest(
        max_wait_ms=0, session_epoch=session_epoch, topics=(f.FetchTopic(topic="t", partitions=wanted),)
    )
    answer = _asked(broker, ApiKey.FETCH, 12, request)
    freed, pieces = 0, answer
    while isinstance(answer, Later):
        result = await answer.future
        before = getallocatedblocks()
        pieces = answer.encode(result)
        del answer, result
        freed = before - getallocatedblocks()
        answer = pieces
    assert freed < 100
    assert isinstance(pieces, list)
    assert sum(map(_size_bytes, pieces)) > 10 * _MANY
