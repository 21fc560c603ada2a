"""A large request takes turns of the loop of its own: several that come at once do not keep everybody else."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from ottla.base.clock import ManualClock
from ottla.base.limits import FRAME_BYTES_AT_ONCE
from ottla.broker.answers import Answer, Later
from ottla.broker.handlers.dispatch import Dispatcher
from ottla.broker.runtime.slices import TURN_MS
from ottla.broker.session import Session
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import encode_request
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.broker.ticking import TickingClock, steps, turns
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
    partitions = tuple(FetchPartition(n) for n in range(_MEMBERS))
    topics = tuple(FetchTopic(topic=f"no such topic {n}", partitions=partitions) for n in range(5))
    asked = FetchRequest(topics=topics)
    frame = bytearray(encode_request(ApiKey.FETCH, 12, 1, "c", asked))
    assert len(frame) > FRAME_BYTES_AT_ONCE
    assert isinstance(Dispatcher(broker.node)(bytes(frame[4:]), Session("PLAINTEXT", "/127.0.0.1")), Later)
    async with WireClient(broker) as client:
        told = await client.ask(ApiKey.FETCH, asked, 12)
        found = [each.error_code for topic in told.responses for each in topic.partitions]
        assert found == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 5 * _MEMBERS
        del frame[-100:]
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        await client.send_bytes(bytes(frame))
        assert await client.is_closed()
    (line,) = [each.getMessage() for each in caplog.records if each.name == "ottla.broker.connections"]
    assert "FetchRequest v12" in line


async def test_a_stranger_is_answered_at_once(broker: AsyncBroker) -> None:
    """What strangers may have in memory is counted until they are answered. Only ApiVersions of theirs comes so far."""
    session = Session("SASL_PLAINTEXT", "/127.0.0.1")
    session.is_known = False
    frame = encode_request(ApiKey.API_VERSIONS, 3, 1, "c", ApiVersionsRequest("x" * FRAME_BYTES_AT_ONCE, "1.0"))[4:]
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
