"""What one fetch may take: a partition is read once, aborted transactions count, and so does what is in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.handlers import fetch
from ottla.broker.handlers.fetch_response import PartitionResult, encode_fetch_steps
from ottla.broker.outbox import Piece
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.slices import TURN_MS
from ottla.log.storage import Slice
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response
from ottla.wire.messages import fetch as f
from tests.broker.counted_log import CountedLog
from tests.broker.records_io import produce
from tests.broker.ticking import TickingClock, some_turns_until, turns
from tests.broker.wire_client import WireClient, batch

_VERSION = 12
_NOW_MS = 1_700_000_000_000


def _asked(*parts: f.FetchPartition, **options: Any) -> f.FetchRequest:
    defaults: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**30, "session_epoch": -1}
    return f.FetchRequest(topics=(f.FetchTopic(topic="t", partitions=parts),), **{**defaults, **options})


def _part(number: int, offset: int = 0, max_bytes: int = 2**20) -> f.FetchPartition:
    return f.FetchPartition(number, fetch_offset=offset, partition_max_bytes=max_bytes)


def _partition(broker: AsyncBroker, number: int) -> Partition:
    found = broker.node.partitions.find("t", number)
    assert found is not None
    return found


def _told(answer: Any) -> list[tuple[int, int]]:
    """Partitions, and bytes of their records."""
    return [(e.partition_index, len(bytes(e.records or b""))) for t in answer.responses for e in t.partitions]


def _abort(broker: AsyncBroker, number: int, count: int) -> None:
    """So many aborted transactions in one partition."""
    log = _partition(broker, number).log
    for producer_id in range(log.end_offset, log.end_offset + count):
        guard = log.producers.begin_verification(producer_id, 0, 0, supports_epoch_bump=False, now_ms=_NOW_MS)
        records = batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        log.append(records, now_ms=_NOW_MS, verification_guard=guard.guard)
        log.append_control(producer_id=producer_id, producer_epoch=0, commit=False, coordinator_epoch=0, now_ms=_NOW_MS)


@pytest.mark.parametrize("times", [3, fetch.AT_ONCE + 1])
@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_a_partition_that_is_named_again_is_read_once(
    broker: AsyncBroker, client: WireClient, times: int, session_epoch: int
) -> None:
    """As Apache Kafka does: it has the place where it was named first, and is read as it was named last."""
    await broker.node.topics.create("t", 2, {})
    records = batch(b"a" * 100)
    await produce(client, records, records)
    again = [_part(0, offset=1)] * times
    answer = await client.ask(ApiKey.FETCH, _asked(*again, _part(1), _part(0), session_epoch=session_epoch), _VERSION)
    assert _told(answer) == [(0, len(records)), (1, len(records))]


async def test_aborted_transactions_have_their_share_of_an_answer(broker: AsyncBroker, client: WireClient) -> None:
    await broker.node.topics.create("t", 3, {"index.interval.bytes": "1000000"})
    for number in range(3):
        _abort(broker, number, 100)
    one = len(batch(b"a"))
    asked = _asked(*(_part(number, max_bytes=one) for number in range(3)), isolation_level=1, max_bytes=one + 1_600)
    answer = await client.ask(ApiKey.FETCH, asked, _VERSION)
    aborts = [len(each.aborted_transactions) for each in answer.responses[0].partitions]
    assert _told(answer) == [(0, one), (1, 0), (2, 0)]
    assert aborts == [100, 0, 0]


_ABORTS, _ABORTING = 100, 60


@pytest.fixture
async def reads(directory: Path) -> AsyncIterator[tuple[AsyncBroker, list[int]]]:
    """A broker with many aborted transactions in each of many partitions, and which of these are read."""
    async with AsyncBroker(data_dir=directory, clock=TickingClock()) as broker:
        await broker.node.topics.create("t", _ABORTING, {})
        read: list[int] = []
        for number in range(_ABORTING):
            _abort(broker, number, _ABORTS)
            partition = _partition(broker, number)
            partition.log = CountedLog(partition.log, read)  # type: ignore[assignment]
        yield broker, read


#: So many are read before it is known that their transactions are many; then a slice of the loop takes some.
_READ_AT_ONCE = fetch.ABORTS_AT_ONCE // _ABORTS + 1 + TURN_MS


def _most_in_a_turn(seen: list[int]) -> int:
    return max(after - before for before, after in pairwise(seen))


async def test_a_fetch_of_many_aborted_transactions_lets_others_have_their_turns(
    reads: tuple[AsyncBroker, list[int]],
) -> None:
    broker, read = reads
    asked = _asked(*map(_part, range(_ABORTING)), isolation_level=1)
    async with WireClient(broker) as client:
        answer = asyncio.create_task(client.ask(ApiKey.FETCH, asked, _VERSION))
        seen = await turns(answer, lambda: len(read))
        assert _most_in_a_turn(seen) <= _READ_AT_ONCE
        told = [len(each.aborted_transactions) for each in (await answer).responses[0].partitions]
        assert told == [_ABORTS] * _ABORTING


@pytest.mark.parametrize("ends", ["its time is over", "records come"])
async def test_a_waiting_fetch_that_finds_many_aborted_transactions_lets_others_have_their_turns(
    reads: tuple[AsyncBroker, list[int]], ends: str
) -> None:
    broker, read = reads
    end = _partition(broker, 0).log.end_offset
    parts = (_part(number, offset=end) for number in range(_ABORTING))
    wait_ms, is_over = (300, True) if ends == "its time is over" else (60_000, False)
    asked = _asked(*parts, isolation_level=1, max_wait_ms=wait_ms, min_bytes=2**30 if is_over else 1)
    async with WireClient(broker) as client:
        answer = asyncio.create_task(client.ask(ApiKey.FETCH, asked, _VERSION))
        await some_turns_until(lambda: all(_partition(broker, number).watched for number in range(_ABORTING)))
        for number in range(_ABORTING):
            _abort(broker, number, _ABORTS)
            if not is_over:
                _partition(broker, number).appended(1)
        seen = await turns(answer, lambda: len(read))
        assert _most_in_a_turn(seen) <= _READ_AT_ONCE
        told = [len(each.aborted_transactions) for each in (await answer).responses[0].partitions]
        assert told == [_ABORTS] * _ABORTING


_WIDE = fetch.AT_ONCE + 1


def _watchers(broker: AsyncBroker) -> int:
    return sum(len(_partition(broker, number)._watchers) for number in range(_WIDE))


async def _begin_to_wait(broker: AsyncBroker, client: WireClient, asked: f.FetchRequest) -> None:
    """Send a fetch, and return when all its partitions are watched."""
    enough = _watchers(broker) + len(asked.topics[0].partitions)
    await client.send(ApiKey.FETCH, asked, _VERSION)
    await some_turns_until(lambda: _watchers(broker) == enough)


@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_waiting_fetches_of_very_many_partitions_have_so_many_at_most(
    broker: AsyncBroker, client: WireClient, session_epoch: int
) -> None:
    """20 connections, each with a fetch of 29,000 partitions that waits for 24 days, had held 446 MB."""
    await broker.node.topics.create("t", _WIDE, {})
    sessions = broker.node.sessions
    sessions.max_waiting_partitions = 2 * _WIDE
    wide = _asked(*map(_part, range(_WIDE)), session_epoch=session_epoch, max_wait_ms=2**31 - 1)
    async with WireClient(broker) as second, WireClient(broker) as narrow:
        await _begin_to_wait(broker, client, wide)
        async with WireClient(broker) as first:
            await _begin_to_wait(broker, first, wide)
            answer = asyncio.create_task(second.ask(ApiKey.FETCH, wide, _VERSION))
            await some_turns_until(answer.done)
            assert len(_told(await answer)) == _WIDE, "it does not wait"
            assert sessions.waiting_partitions == 2 * _WIDE
            await _begin_to_wait(broker, narrow, _asked(_part(0), max_wait_ms=2**31 - 1))
        await some_turns_until(lambda: _watchers(broker) == _WIDE + 1)
        await _begin_to_wait(broker, second, wide)
        async with WireClient(broker) as writer:
            await produce(writer, batch(b"a"))
        for each in (client, second, narrow):
            assert _told(await each.answer(ApiKey.FETCH, _VERSION))[0] == (0, len(batch(b"a")))
        assert sessions.waiting_partitions == 0


def _in_memory(pieces: Sequence[Piece]) -> int:
    return sum(len(piece) for piece in pieces if not isinstance(piece, Slice))


@pytest.mark.parametrize(("size", "count"), [(60_000, 100), (1_000, 900)])
async def test_small_pieces_of_files_take_so_much_memory_and_beyond_it_are_sent_as_files(
    broker: AsyncBroker, client: WireClient, size: int, count: int
) -> None:
    """900 of 65,000 bytes were 55 MB for each connection, and nobody counted them while they were read."""
    await broker.node.topics.create("t", 1, {})
    await produce(client, batch(bytes(size)))
    read = _partition(broker, 0).log.read(0, 2**20)
    results = [PartitionResult("t", NULL_UUID, number, read) for number in range(count)]
    pieces: list[Piece] = []
    counted: list[int] = []
    for _ in encode_fetch_steps(_VERSION, 7, ErrorCode.NONE, 0, results, pieces, take=counted.append):
        pass
    assert 900_000 < _in_memory(pieces) < 1_200_000
    assert sum(counted) == _in_memory(pieces) - 4, "all but the frame's length"
    whole = decode_response(ApiKey.FETCH, _VERSION, b"".join(map(_bytes_of, pieces))[4:])[1]
    assert _told(whole) == [(number, read.size_bytes) for number in range(count)]


def _bytes_of(piece: Piece) -> bytes:
    return piece.read() if isinstance(piece, Slice) else bytes(piece)


async def test_what_a_fetch_of_many_partitions_reads_counts_while_it_is_read(
    broker: AsyncBroker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    many = fetch.AT_ONCE + 1
    await broker.node.topics.create("t", many, {})
    await produce(client, *[batch(bytes(1_000))] * many)
    answers, asked = broker.node.answers, _asked(*map(_part, range(many)))
    answers.limit_bytes = 100_000
    await client.send(ApiKey.FETCH, asked, _VERSION)
    assert await client.is_closed()
    assert "its answer to Fetch is larger than 100000 bytes" in caplog.text
    assert answers.held_bytes == 0
    answers.limit_bytes = 300_000
    async with WireClient(broker) as other:
        assert len(_told(await other.ask(ApiKey.FETCH, asked, _VERSION))) == many
    assert answers.held_bytes == 0
