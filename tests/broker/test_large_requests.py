"""A large request takes turns of the loop of its own: several that come at once do not keep everybody else."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from ottla.base.clock import ManualClock
from ottla.base.limits import FRAME_BYTES_AT_ONCE
from ottla.broker.answers import Answer, Later
from ottla.broker.connections import Connections
from ottla.broker.handlers.dispatch import Dispatcher
from ottla.broker.handlers.encoding import as_it_is
from ottla.broker.listening import Listener
from ottla.broker.ports.quotas import Charge
from ottla.broker.runtime.slices import TURN_MS
from ottla.broker.session import Session
from ottla.log.storage import Slice
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.broker.lone_connections import LoneClient
from tests.broker.ticking import TickingClock, some_turns_until, steps, turns
from tests.broker.wire_client import WireClient

_MEMBERS = 1_000
_REFUSED = 200
#: What else looks at the clock in a turn.
_AROUND = 10


@pytest.fixture
def clock() -> TickingClock:
    return TickingClock()


@pytest.fixture
async def broker(clock: TickingClock) -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(clock=clock) as running:
        yield running


def _leave(members: int) -> LeaveGroupRequest:
    """So many members, of 100 bytes and more each."""
    return LeaveGroupRequest("g", tuple(MemberIdentity(f"{n:0100}") for n in range(members)))


async def test_large_requests_that_come_at_once_take_turns(broker: AsyncBroker) -> None:
    dispatch = Dispatcher(broker.node)

    def ask(members: int) -> Answer:
        frame = encode_request(ApiKey.LEAVE_GROUP, 4, 1, "c", _leave(members))[4:]
        assert (len(frame) > FRAME_BYTES_AT_ONCE) is (members == _MEMBERS)
        return dispatch(frame, Session("PLAINTEXT", "/127.0.0.1"))

    assert not isinstance(ask(1), Later)
    asked = [ask(_MEMBERS) for _ in range(8)]
    large = [each.future for each in asked if isinstance(each, Later)]
    assert len(large) == len(asked)
    every = asyncio.create_task(asyncio.wait(large))
    seen = await turns(every, lambda: sum(each.done() for each in large))
    assert seen[-1] == len(large)
    assert max(steps(seen)) == 1


async def test_a_large_fetch_is_decoded_while_others_are_served(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Its partitions are few here. What is behind a request is ignored, as in Kafka, but has to be received."""
    await broker.node.topics.create("t", 1, {})
    asked = FetchRequest(topics=(FetchTopic(topic="t", partitions=(FetchPartition(0),)),))
    small = encode_request(ApiKey.FETCH, 12, 1, "c", asked)[4:]
    large = small + bytes(FRAME_BYTES_AT_ONCE)
    dispatch, session = Dispatcher(broker.node), Session("PLAINTEXT", "/127.0.0.1")
    assert not isinstance(dispatch(small, session), Later)
    answer = dispatch(large, session)
    assert isinstance(answer, Later)
    told = answer.encode(await answer.future)
    assert isinstance(told, list)
    frame = b"".join(each for each in told if not isinstance(each, Slice))
    assert decode_response(ApiKey.FETCH, 12, frame[4:])[1].responses[0].partitions[0].error_code == ErrorCode.NONE
    async with WireClient(broker) as client:
        damaged = large[: len(small) - 20].ljust(len(large), b"\xff")
        await client.send_bytes(len(damaged).to_bytes(4, "big") + damaged)
        assert await client.is_closed()
    (line,) = [each.getMessage() for each in caplog.records if each.name == "ottla.broker.connections"]
    assert "FetchRequest v12" in line


async def test_what_a_client_waits_for_ends_with_its_connection_also_where_it_is_known_just_then() -> None:
    """A large request gives what its fetch waits for. The client goes when that is there and not passed on yet."""
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    clock = ManualClock()
    listener = Listener(
        lambda frame, session: Later(first, as_it_is),
        clock,
        Connections(clock, max_idle_ms=-1),
        name="PLAINTEXT",
        max_request_bytes=100,
    )
    client = LoneClient(listener)
    client.send(1)
    first.set_result(Later(second, as_it_is))
    client.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert second.cancelled()


@pytest.mark.parametrize(("markers", "partitions"), [(300, 1), (20, 40)])
async def test_many_transaction_markers_are_written_in_turns_and_to_the_end(
    broker: AsyncBroker, markers: int, partitions: int
) -> None:
    await broker.node.topics.create("t", partitions, {})
    logs = [broker.node.partitions.find("t", n) for n in range(partitions)]

    def written() -> int:
        return sum(each.log.end_offset for each in logs if each is not None)

    named = (WritableTxnMarkerTopic("t", tuple(range(partitions))),)
    request = WriteTxnMarkersRequest(tuple(WritableTxnMarker(n, 0, True, named) for n in range(markers)))
    async with WireClient(broker) as client:
        answer = asyncio.create_task(client.ask(ApiKey.WRITE_TXN_MARKERS, request))
        seen = await turns(answer, written)
        assert len((await answer).markers) == markers
        assert max(steps(seen)) <= (TURN_MS + 1) * partitions
        await client.send(ApiKey.WRITE_TXN_MARKERS, request, 1)
        await some_turns_until(lambda: written() > markers * partitions)
    await some_turns_until(lambda: written() == 2 * markers * partitions)  # who has asked is gone


async def test_what_a_large_request_takes_is_charged(broker: AsyncBroker) -> None:
    """Its answer is made, and charged, in the midst of a step."""
    quotas = broker.node.quotas
    limit = EntryData((EntityData("client-id", None),), (OpData("request_percentage", 1.0, False),))
    async with WireClient(broker) as client:
        await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest((limit,)), 1)
    now_ns = 0
    quotas.nanos = lambda: now_ns
    charge = quotas.charge(Session("PLAINTEXT", "/127.0.0.1"), "c")

    assert charge is not None

    def step(charge: Charge) -> Iterator[int]:
        nonlocal now_ns
        now_ns += 10**9
        yield charge.requested()

    charge.carried(Later(asyncio.get_running_loop().create_future(), as_it_is))
    (throttle_ms,) = charge.timed(step(charge))
    assert throttle_ms > 0


async def test_a_stranger_is_answered_at_once(broker: AsyncBroker) -> None:
    """What strangers may have in memory is counted until they are answered. Only ApiVersions of theirs comes so far."""
    session = Session("SASL_PLAINTEXT", "/127.0.0.1")
    session.is_known = False
    request = encode_request(ApiKey.API_VERSIONS, 3, 1, "c", ApiVersionsRequest("x", "1.0"))[4:]
    frame = request + bytes(FRAME_BYTES_AT_ONCE)  # what is behind a request counts, and is not read
    assert not isinstance(Dispatcher(broker.node)(frame, session), Later)


async def test_what_comes_behind_a_large_request_is_answered_behind_it(broker: AsyncBroker) -> None:
    await broker.node.groups.ready()
    async with WireClient(broker) as client:
        large = await client.send(ApiKey.LEAVE_GROUP, _leave(_MEMBERS), 4)
        small = encode_request(ApiKey.API_VERSIONS, 3, 77, "c", ApiVersionsRequest("test", "1.0"))
        await client.send_bytes(small)
        told = await client.answer(ApiKey.LEAVE_GROUP, large)
        assert {each.error_code for each in told.members} == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert len(told.members) == _MEMBERS
        assert (await client.frame())[:4] == (77).to_bytes(4, "big")


async def test_a_large_request_that_is_damaged_closes_its_connection_and_says_why(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    frame = bytearray(encode_request(ApiKey.LEAVE_GROUP, 3, 1, "c", _leave(_MEMBERS)))
    frame[17:21] = b"\x7f\xff\xff\xff"  # the number of members, behind the names of the client and the group
    async with WireClient(broker) as client:
        await client.send_bytes(bytes(frame))
        assert await client.is_closed()
    (line,) = [each.getMessage() for each in caplog.records if each.name == "ottla.broker.connections"]
    assert "LeaveGroupRequest v3" in line


@pytest.mark.parametrize("validate_only", [False, True])
async def test_quotas_that_are_refused_are_looked_at_one_by_one(
    broker: AsyncBroker, clock: TickingClock, validate_only: bool
) -> None:
    wanted = (OpData("producer_byte_rate", 1.0, False),)
    entries = tuple(EntryData((EntityData("no such type", f"{n}"),), wanted) for n in range(_REFUSED))
    async with WireClient(broker) as client:
        asked = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(entries, validate_only))
        answer = asyncio.create_task(asked)
        seen = await turns(answer, partial(ManualClock.monotonic_ms, clock))
        assert {each.error_code for each in (await answer).entries} == {ErrorCode.INVALID_REQUEST}
    assert seen[-1] - seen[0] > 2 * _REFUSED, "each is a step, and so is its answer"
    assert max(steps(seen)) <= TURN_MS + _AROUND


async def test_quotas_that_are_only_validated_are_not_set(broker: AsyncBroker) -> None:
    entry = EntryData((EntityData("user", "alice"),), (OpData("producer_byte_rate", 1.0, False),))
    async with WireClient(broker) as client:
        asked = AlterClientQuotasRequest((entry,), validate_only=True)
        (told,) = (await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, asked)).entries
    assert told.error_code == ErrorCode.NONE
    assert not broker.node.image.quotas.values((("user", "alice"),))


async def test_many_quotas_are_set_in_turns_and_are_all_there_when_that_is_answered(
    broker: AsyncBroker, clock: TickingClock
) -> None:
    """10,000 came into force in one turn of 23 ms. In the log they are one batch."""
    wanted = (OpData("producer_byte_rate", 1.0, False),)
    entries = tuple(EntryData((EntityData("user", f"u{n}"),), wanted) for n in range(_REFUSED))

    def there() -> int:
        return sum(1 for _ in broker.node.image.quotas)

    async with WireClient(broker) as client:
        begun = ManualClock.monotonic_ms(clock)
        answer = asyncio.create_task(client.ask(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(entries)))
        seen = await turns(answer, there)
        looked = ManualClock.monotonic_ms(clock) - begun
        assert {each.error_code for each in (await answer).entries} == {ErrorCode.NONE}
    assert max(steps(seen)) <= TURN_MS + 1
    assert seen[-1] == _REFUSED
    assert looked > 6 * _REFUSED, "each is decided, comes into force, is told, and encoded, in a step of its own"
