"""One connection against a scripted broker: timeouts, garbage, lost connections, versions (KIP-35, KIP-511)."""

import asyncio
import gc
import random

import pytest

from ottla.client.config.admin import admin_config
from ottla.client.errors import DisconnectedError, RequestTimeoutError, UnsupportedVersionError
from ottla.client.net.cluster import Cluster
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import RequestHeader
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests.client.listener import beat, broker, open_to, say, versions_only


async def test_the_handshake_learns_versions_and_features() -> None:
    async with broker(versions_only) as port:
        connection = await open_to(port)
        assert connection.versions.implicit_partitions
        assert connection.versions.choose(ApiKey.HEARTBEAT) == API[ApiKey.HEARTBEAT].max_version
        connection.close()


async def test_an_older_broker_is_asked_again_in_its_own_version() -> None:
    seen = []

    async def old(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        seen.append(header.api_version)
        keys = (ApiVersion(ApiKey.API_VERSIONS, 0, 2), ApiVersion(ApiKey.HEARTBEAT, 0, 1))
        if header.api_version > 2:
            say(header, writer, ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, keys), version=0)
        else:
            say(header, writer, ApiVersionsResponse(api_keys=keys))

    async with broker(old) as port:
        connection = await open_to(port)
        assert seen == [API[ApiKey.API_VERSIONS].max_version, 2]
        assert connection.versions.choose(ApiKey.HEARTBEAT) == 1
        with pytest.raises(UnsupportedVersionError, match="no version of FETCH"):
            connection.versions.choose(ApiKey.FETCH)
        connection.close()


async def test_answers_find_their_requests_in_order() -> None:
    async def count(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        await versions_only(header, writer)
        if header.api_key == ApiKey.HEARTBEAT:
            say(header, writer, HeartbeatResponse(header.correlation_id))

    async with broker(count) as port:
        connection = await open_to(port)
        answers = await asyncio.gather(*(beat(connection) for _ in range(5)))
        assert [answer.throttle_time_ms for answer in answers] == [2, 3, 4, 5, 6]
        assert connection.in_flight == 0
        connection.close()


async def test_a_request_that_times_out_takes_the_connection_with_it() -> None:
    async with broker(versions_only) as port:
        connection = await open_to(port)
        first, second = beat(connection, 20), beat(connection)
        with pytest.raises(RequestTimeoutError, match="did not answer HEARTBEAT within 20 ms"):
            await first
        with pytest.raises(RequestTimeoutError):
            await second
        assert not connection.is_open
        with pytest.raises(RequestTimeoutError):
            await beat(connection)


async def test_a_request_with_less_time_does_not_wait_for_one_with_more() -> None:
    async with broker(versions_only) as port:
        connection = await open_to(port)
        patient, hasty = beat(connection, 60_000), beat(connection, 20)
        with pytest.raises(RequestTimeoutError, match="within 20 ms"):
            await hasty
        with pytest.raises(RequestTimeoutError, match="within 20 ms"):
            await patient


async def test_the_deadline_of_a_request_that_was_answered_ends_nothing() -> None:
    answered: list[RequestHeader] = []

    async def answer_once(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        await versions_only(header, writer)
        if header.api_key == ApiKey.HEARTBEAT and not answered:
            answered.append(header)
            say(header, writer, HeartbeatResponse())

    async with broker(answer_once) as port:
        connection = await open_to(port)
        await beat(connection, 50)
        passed, second = asyncio.Event(), beat(connection, 60_000)
        asyncio.get_running_loop().call_later(0.06, passed.set)
        await passed.wait()
        assert connection.is_open
        assert not second.done()
        connection.close()
        with pytest.raises(DisconnectedError):
            await second


async def test_whoever_hears_an_answer_may_close_the_connection_with_others_behind_it() -> None:
    waiting: list[RequestHeader] = []

    async def answer_two_at_once(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        await versions_only(header, writer)
        if header.api_key == ApiKey.HEARTBEAT:
            waiting.append(header)
            if len(waiting) == 2:
                for each in waiting:
                    say(each, writer, HeartbeatResponse())

    async with broker(answer_two_at_once) as port:
        connection = await open_to(port)
        heard: list[tuple[str, object, Exception | None]] = []
        done = asyncio.get_running_loop().create_future()

        def first(answer: object, error: Exception | None) -> None:
            heard.append(("first", answer, error))
            connection.close()

        def second(answer: object, error: Exception | None) -> None:
            heard.append(("second", answer, error))
            done.set_result(None)

        for each in (first, second):
            connection.ask(ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "m"), 5_000, each)
        await done
        assert [name for name, _, _ in heard] == ["first", "second"]
        assert heard[0][1:] == (HeartbeatResponse(), None)
        assert heard[1][1] is None
        assert isinstance(heard[1][2], DisconnectedError) and "was closed" in str(heard[1][2])


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\2hi", b"\0\0\0\x08\0\0\0\x63\0\0\0\0"],
    ids=["negative length", "huge length", "too short", "wrong correlation id"],
)
async def test_garbage_ends_the_connection(garbage: bytes) -> None:
    async def babble(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        await versions_only(header, writer)
        if header.api_key == ApiKey.HEARTBEAT:
            writer.write(garbage)

    async with broker(babble) as port:
        connection = await open_to(port)
        with pytest.raises(DisconnectedError, match="not Kafka's protocol"):
            await beat(connection)
        assert not connection.is_open


async def test_a_lost_connection_fails_what_waits() -> None:
    async def hang_up(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        await versions_only(header, writer)
        if header.api_key == ApiKey.HEARTBEAT:
            writer.close()

    async with broker(hang_up) as port:
        connection = await open_to(port)
        with pytest.raises(DisconnectedError):
            await asyncio.gather(beat(connection), beat(connection))


async def test_nobody_listening_is_a_disconnected_error() -> None:
    async with broker(versions_only) as port:
        pass
    with pytest.raises(DisconnectedError, match="cannot connect"):
        await open_to(port)


async def test_an_answer_to_a_cancelled_request_disturbs_nothing() -> None:
    async def echo(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        await versions_only(header, writer)
        if header.api_key == ApiKey.HEARTBEAT:
            say(header, writer, HeartbeatResponse())

    async with broker(echo) as port:
        connection = await open_to(port)
        first = beat(connection)
        first.cancel()
        assert (await beat(connection)).error_code == ErrorCode.NONE
        connection.close()


async def test_the_cluster_finds_the_brokers_behind_the_bootstrap_server_and_comes_back() -> None:
    hung_up: list[bool] = []

    async def serve(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        await versions_only(header, writer)
        if header.api_key == ApiKey.METADATA:
            if len(hung_up) < 2:  # twice nothing, then the answer
                hung_up.append(True)
                writer.close()
                return
            brokers = (MetadataResponseBroker(5, "127.0.0.1", int(writer.get_extra_info("sockname")[1])),)
            say(header, writer, MetadataResponse(brokers=brokers, controller_id=5))

    async with broker(serve) as port:
        config = admin_config(
            {
                "bootstrap.servers": f"127.0.0.1:1,127.0.0.1:{port}",
                "retry.backoff.ms": 1,
                "reconnect.backoff.ms": 1,
                "reconnect.backoff.max.ms": 1,
            }
        )
        cluster = Cluster(config, random.Random(1))
        await cluster.start()
        snapshot = await cluster.ensure_metadata(10_000)
        assert list(snapshot.nodes) == [5]
        answer = await cluster.request(5, ApiKey.METADATA, MetadataRequest())
        assert answer.controller_id == 5
        with pytest.raises(DisconnectedError, match="not in the cluster's metadata"):
            await cluster.request(6, ApiKey.METADATA, MetadataRequest())
        await cluster.close()
        with pytest.raises(DisconnectedError):
            await cluster.refreshed()


async def test_a_connection_that_fails_after_its_last_waiter_gave_up_is_no_noise() -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    async with broker(versions_only) as port:
        pass  # nobody listens there any more
    cluster = Cluster(admin_config({"bootstrap.servers": f"127.0.0.1:{port}"}), random.Random(1))
    waiter = asyncio.create_task(cluster.connection(cluster.least_loaded()))
    await asyncio.wait({waiter}, timeout=0)
    (connecting,) = (task for task in asyncio.all_tasks() if task.get_name().startswith("ottla-connect"))
    waiter.cancel()
    await asyncio.wait({waiter, connecting})
    del waiter, connecting
    gc.collect()
    await cluster.close()
    assert complaints == []
