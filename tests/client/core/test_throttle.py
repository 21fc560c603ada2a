"""KIP-219: a connection whose broker asks for silence is silent."""

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.core.throttle import Throttle
from ottla.client.errors import DisconnectedError, RequestTimeoutError
from ottla.wire.apis import ApiKey
from ottla.wire.frames import RequestHeader
from ottla.wire.messages.heartbeat import HeartbeatResponse
from tests.client.listener import beat, broker, open_to, say, versions_only


class Untold(NamedTuple):
    """An answer that knows no throttle time."""

    error_code: int = 0


def test_the_longest_silence_counts() -> None:
    throttle = Throttle()
    throttle.answered(HeartbeatResponse(), 10.0)
    throttle.answered(Untold(), 10.0)
    assert throttle.left_s(10.0) == 0.0
    assert throttle.answered(HeartbeatResponse(throttle_time_ms=2_000), 10.0) == 2.0
    assert throttle.answered(HeartbeatResponse(throttle_time_ms=500), 11.0) == 0.0
    assert throttle.answered(HeartbeatResponse(), 11.0) == 0.0
    assert throttle.left_s(11.0) == 1.0
    assert throttle.answered(HeartbeatResponse(throttle_time_ms=1_500), 11.0) == 0.5
    assert throttle.left_s(11.5) == 1.0
    assert throttle.left_s(12.5) == throttle.left_s(13.0) == 0.0


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 5_000))))
def test_nothing_is_sent_before_any_answer_allows_it(answers: list[tuple[int, int]]) -> None:
    throttle, now_ms, until_ms = Throttle(), 0, 0
    for passed_ms, throttle_time_ms in answers:
        now_ms += passed_ms
        throttle.answered(HeartbeatResponse(throttle_time_ms=throttle_time_ms), now_ms / 1000)
        until_ms = max(until_ms, now_ms + throttle_time_ms)
        assert throttle.left_s(now_ms / 1000) == pytest.approx(max(0, until_ms - now_ms) / 1000)


async def test_requests_wait_for_the_end_of_the_silence_and_keep_their_order() -> None:
    came_s: list[float] = []
    loop = asyncio.get_running_loop()

    async def limit(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        await versions_only(header, writer)
        if header.api_key == ApiKey.HEARTBEAT:
            came_s.append(loop.time())
            say(header, writer, HeartbeatResponse(200 if len(came_s) == 1 else 0, header.correlation_id))

    async with broker(limit) as port:
        connection = await open_to(port)
        await beat(connection)
        silent_until_s = loop.time() + 0.15  # a little less than what was asked, the answer took its time too
        writable = [connection.is_writable]
        later = [beat(connection, 100) for _ in range(3)]  # their timeouts begin after the silence
        writable.append(connection.is_writable)
        answers = await asyncio.gather(*later)
        await connection.drained()
        assert writable == [True, False]
        assert [answer.error_code for answer in answers] == [3, 4, 5]
        assert len(came_s) == 4
        assert min(came_s[1:]) >= silent_until_s
        connection.close()


async def test_what_was_sent_before_the_silence_gets_the_time_of_the_silence_too() -> None:
    came: list[RequestHeader] = []

    async def slow_reader(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        await versions_only(header, writer)
        if header.api_key == ApiKey.HEARTBEAT:
            came.append(header)
            if len(came) == 1:
                say(header, writer, HeartbeatResponse(throttle_time_ms=300))
                heard_again = asyncio.Event()  # a muted connection, as Apache Kafka has it
                asyncio.get_running_loop().call_later(0.3, heard_again.set)
                await heard_again.wait()
            else:
                say(header, writer, HeartbeatResponse())

    async with broker(slow_reader) as port:
        connection = await open_to(port)
        answers = await asyncio.gather(*(beat(connection, 250) for _ in range(3)))
        assert [answer.throttle_time_ms for answer in answers] == [300, 0, 0]
        connection.close()


async def test_what_waits_fails_with_its_connection() -> None:
    async def limit(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        await versions_only(header, writer)
        if header.api_key == ApiKey.HEARTBEAT:
            say(header, writer, HeartbeatResponse(throttle_time_ms=60_000))

    async with broker(limit) as port:
        connection = await open_to(port)
        await beat(connection)
        waiting = beat(connection)
        connection.close()
        with pytest.raises(DisconnectedError):
            await waiting
        await connection.drained()


async def test_silence_after_the_silence_is_a_timeout() -> None:
    async def once(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        await versions_only(header, writer)
        if header.api_key == ApiKey.HEARTBEAT and header.correlation_id == 2:
            say(header, writer, HeartbeatResponse(throttle_time_ms=10))

    async with broker(once) as port:
        connection = await open_to(port)
        await beat(connection)
        with pytest.raises(RequestTimeoutError, match="within 20 ms"):
            await beat(connection, 20)
