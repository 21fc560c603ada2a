"""SPEC X1: SASL over a connection, on a scripted broker: refusals, waiting requests, sessions that end (KIP-368)."""

import asyncio
import random
import socket
from collections.abc import Callable
from itertools import count

import pytest

from ottla.base.secret import Secret
from ottla.client.config.admin import admin_config
from ottla.client.config.security import Sasl
from ottla.client.errors import DisconnectedError, RequestTimeoutError, SaslAuthenticationError
from ottla.client.net.authentication import Opener, authenticate
from ottla.client.net.cluster import Cluster
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import RequestHeader
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.client.listener import Script, beat, broker, open_to, say, versions_only

_PLAIN = Sasl("PLAIN", "alice", Secret("hunter2"))


def _sasl(shake: SaslHandshakeResponse, *answers: SaslAuthenticateResponse, seen: list[ApiKey] | None = None) -> Script:
    """Shakes hands, then gives these answers; the last of them for ever."""
    left = list(answers)

    async def script(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        if seen is not None:
            seen.append(ApiKey(header.api_key))
        await versions_only(header, writer)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            assert header.api_version == 1
            say(header, writer, shake)
        elif header.api_key == ApiKey.SASL_AUTHENTICATE:
            say(header, writer, left.pop(0) if len(left) > 1 else left[0])
        elif header.api_key == ApiKey.HEARTBEAT:
            say(header, writer, HeartbeatResponse())

    return script


async def test_x1_a_session_has_the_life_that_the_broker_says() -> None:
    script = _sasl(SaslHandshakeResponse(), SaslAuthenticateResponse(session_lifetime_ms=4_000))
    async with broker(script) as port:
        connection = await open_to(port)
        assert await authenticate(connection, _PLAIN, 20_000) == 4_000
        await beat(connection)
        connection.close()


@pytest.mark.parametrize(
    ("shake", "answer", "why"),
    [
        (
            SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("SCRAM-SHA-256",)),
            None,
            "offers: SCRAM-SHA-256",
        ),
        (SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE), None, "asks nobody who they are"),
        (SaslHandshakeResponse(ErrorCode.UNKNOWN_SERVER_ERROR), None, "error code -1"),
        (
            SaslHandshakeResponse(),
            SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "Invalid username or password"),
            r"refuses user alice \(PLAIN\): Invalid username",
        ),
        (SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"what?"), "5 bytes, where there are none"),
    ],
)
async def test_x1_refusals_say_why(
    shake: SaslHandshakeResponse, answer: SaslAuthenticateResponse | None, why: str
) -> None:
    async with broker(_sasl(shake, answer or SaslAuthenticateResponse())) as port:
        connection = await open_to(port)
        with pytest.raises(SaslAuthenticationError, match=why) as refused:
            await authenticate(connection, _PLAIN, 20_000)
        assert not refused.value.retriable
        assert "hunter2" not in str(refused.value)
        connection.close()


async def test_x1_a_broker_that_does_not_prove_that_it_knows_the_password() -> None:
    scram = Sasl("SCRAM-SHA-256", "alice", Secret("hunter2"))
    async with broker(
        _sasl(SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"r=x,s=YQ==,i=4096"))
    ) as port:
        connection = await open_to(port)
        with pytest.raises(SaslAuthenticationError, match="does not continue the client's"):
            await authenticate(connection, scram, 20_000)
        connection.close()


async def test_x1_what_a_callable_raises_is_the_cause_and_is_not_shown() -> None:
    def token() -> Secret:
        raise RuntimeError("the secret is hunter2")

    async with broker(_sasl(SaslHandshakeResponse(), SaslAuthenticateResponse())) as port:
        connection = await open_to(port)
        with pytest.raises(SaslAuthenticationError, match="oauth_cb has raised RuntimeError") as refused:
            await authenticate(connection, Sasl("OAUTHBEARER", token=token), 20_000)
        assert "hunter2" not in str(refused.value)
        assert isinstance(refused.value.__cause__, RuntimeError)
        connection.close()


async def test_x1_requests_wait_while_the_client_authenticates() -> None:
    seen: list[ApiKey] = []
    async with broker(_sasl(SaslHandshakeResponse(), SaslAuthenticateResponse(), seen=seen)) as port:
        connection = await open_to(port)
        with connection.held():
            waiting = beat(connection)
            await authenticate(connection, _PLAIN, 20_000)
        await waiting
        ours = [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
        assert seen == [ApiKey.API_VERSIONS, *ours, ApiKey.HEARTBEAT]
        connection.close()


def _opener(
    port: int, spawn: Callable[..., "asyncio.Task[None]"] = lambda work, name: asyncio.create_task(work)
) -> Opener:
    keys = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    config = admin_config({"bootstrap.servers": f"127.0.0.1:{port}", **keys, "sasl.password": "hunter2"})
    return Opener(config, random.Random(0), spawn)


async def test_x1_a_session_is_renewed_before_it_ends() -> None:
    seen: list[ApiKey] = []
    lives = [SaslAuthenticateResponse(session_lifetime_ms=life) for life in (1, 1, 0)]
    async with broker(_sasl(SaslHandshakeResponse(), *lives, seen=seen)) as port:
        connection = await _opener(port).open("127.0.0.1", port)
        assert connection.renewal is not None
        await connection.renewal
        assert seen.count(ApiKey.SASL_AUTHENTICATE) == 3
        await beat(connection)
        connection.close()


async def test_x1_a_refused_renewal_ends_the_connection_with_its_error() -> None:
    answers = (SaslAuthenticateResponse(session_lifetime_ms=1), SaslAuthenticateResponse(58, "revoked"))
    async with broker(_sasl(SaslHandshakeResponse(), *answers)) as port:
        connection = await _opener(port).open("127.0.0.1", port)
        assert connection.renewal is not None
        await connection.renewal
        with pytest.raises(SaslAuthenticationError, match="revoked"):
            await beat(connection)


async def test_x1_a_token_that_cannot_be_had_for_a_while_does_not_end_the_connection() -> None:
    """Requests that are under way would be lost with it, although the session lives."""
    asked = count()

    def token(config: str) -> str:
        if 1 <= next(asked) <= 2:
            raise OSError("the endpoint is away")
        return "a.b.c"

    keys = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}
    config = admin_config({"bootstrap.servers": "127.0.0.1:1", **keys})
    lives = [SaslAuthenticateResponse(session_lifetime_ms=life) for life in (600, 0)]
    async with broker(_sasl(SaslHandshakeResponse(), *lives)) as port:
        opener = Opener(config, random.Random(0), lambda work, name: asyncio.create_task(work, name=name))
        connection = await opener.open("127.0.0.1", port)
        assert connection.renewal is not None
        await connection.renewal
        assert next(asked) == 4
        await beat(connection)
        connection.close()


async def test_x1_a_lost_connection_is_not_renewed() -> None:
    script = _sasl(SaslHandshakeResponse(), SaslAuthenticateResponse(session_lifetime_ms=3_600_000))
    async with broker(script) as port:
        connection = await _opener(port).open("127.0.0.1", port)
        renewal = connection.renewal
        assert renewal is not None
        connection.abort(DisconnectedError("gone"))
        with pytest.raises(asyncio.CancelledError):
            await renewal


async def test_x1_a_refused_client_does_not_try_again_by_itself() -> None:
    seen: list[ApiKey] = []
    refusal = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")
    async with broker(_sasl(SaslHandshakeResponse(), refusal, seen=seen)) as port:
        keys = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        config = admin_config(
            {"bootstrap.servers": f"127.0.0.1:{port}", **keys, "sasl.password": "x", "retry.backoff.ms": 1}
        )
        cluster = Cluster(config, random.Random(0))
        await cluster.start()
        for attempt in (1, 2):  # each call tries once
            with pytest.raises(SaslAuthenticationError, match="refuses user alice"):
                await cluster.refreshed(20_000)
            assert seen.count(ApiKey.SASL_AUTHENTICATE) <= attempt + 1
        await cluster.close()


async def test_x1_no_frame_of_a_refusal_s_traceback_keeps_the_password() -> None:
    refusal = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")
    async with broker(_sasl(SaslHandshakeResponse(), refusal)) as port:
        connection = await open_to(port)
        with pytest.raises(SaslAuthenticationError) as refused:
            await authenticate(connection, _PLAIN, 20_000)
        kept = [entry.frame.f_locals for entry in refused.traceback]
        assert "hunter2" not in repr(kept)
        assert len(kept) > 1
        connection.close()


async def test_x1_a_token_endpoint_that_does_not_answer_is_named_and_not_the_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as endpoint:  # nobody accepts there
        url = f"http://127.0.0.1:{endpoint.getsockname()[1]}/token"
        keys = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "hunter2",
            "sasl.login.retry.backoff.ms": 1,
            "sasl.login.retry.backoff.max.ms": 1,
        }
        async with broker(_sasl(SaslHandshakeResponse(), SaslAuthenticateResponse())) as port:
            cluster = Cluster(admin_config({"bootstrap.servers": f"127.0.0.1:{port}", **keys}), random.Random(0))
            await cluster.start()
            told = ""
            while f"no token has come yet from {url}" not in told:  # a thread asks, and tells nobody when it begins
                with pytest.raises(RequestTimeoutError) as late:
                    await cluster.refreshed(1)
                told = str(late.value)
            endpoint.close()
            await cluster.close()
