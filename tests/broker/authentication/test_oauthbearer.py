"""OAUTHBEARER of a listener: who is let in by a token, when the session ends, and keys that change."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ottla import AsyncAdmin, AsyncProducer, NewTopic
from ottla.base.clock import ManualClock
from ottla.base.errors import ConfigError
from ottla.broker.authentication.jwks import Endpoint, Jwks, KeysError
from ottla.broker.config_keys import STANDARD_AUTHORIZER
from ottla.client.errors import KafkaError, SaslAuthenticationError
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.authentication.token_issuer import Issuer
from tests.broker.wire_client import WireClient

ISSUER = Issuer()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The issuer's keys in a file."""
    file = tmp_path / "keys.json"
    file.write_text(ISSUER.jwks())
    return file


def _config(url: str, **more: object) -> dict[str, object]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "connection.failed.authentication.delay.ms": "0",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def _client(broker: AsyncBroker, token: str) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda text: token,
    }


def _now(lasts_s: int = 600, **claims: Any) -> str:
    now_s = int(time.time())
    return ISSUER.token(iat=now_s, exp=now_s + lasts_s, **claims)


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


def _write(file: Path, text: str) -> str:
    """Its URL."""
    file.write_text(text)
    return file.as_uri()


async def test_whose_token_it_is_is_the_principal(keys: Path) -> None:
    access: dict[str, object] = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:alice"}
    java = {
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
    }
    async with AsyncBroker({**_config(keys.as_uri()), **access, **java}) as broker:
        common = _client(broker, _now())
        async with AsyncAdmin(common) as admin:
            await admin.create_topics([NewTopic("t")])
        async with AsyncProducer(common) as producer:
            await (await producer.send("t", b"x" * 700_000))
        async with AsyncAdmin(_client(broker, _now(sub="bob"))) as admin:
            with pytest.raises(KafkaError, match="AUTHORIZATION_FAILED"):
                await admin.create_topics([NewTopic("u")])


async def test_a_refused_client_is_told_no_more_than_that_and_the_log_says_why(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with AsyncBroker(_config(keys.as_uri(), sasl_oauthbearer_expected_audience="kafka")) as broker:
        token = _now(aud="others")
        with pytest.raises(SaslAuthenticationError, match="invalid_token") as refused:
            async with AsyncAdmin(_client(broker, token)) as admin:
                await admin.describe_cluster()
        async with AsyncAdmin(_client(broker, _now(aud="kafka"))) as admin:
            await admin.describe_cluster()
    assert "audience" not in str(refused.value)
    assert any("somebody else (sasl.oauthbearer.expected.audience)" in each for each in caplog.messages)
    assert token not in caplog.text


async def _authenticate(client: WireClient, token: str, name: str = "") -> SaslAuthenticateResponse:
    await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("OAUTHBEARER"), 1)
    said = f"n,{name and f'a={name}'},\x01auth=Bearer {token}\x01extra=word\x01\x01".encode()
    answer: SaslAuthenticateResponse = await client.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(said), 2)
    return answer


async def _is_served(client: WireClient) -> bool:
    try:
        return bool((await client.ask(ApiKey.LIST_GROUPS, ListGroupsRequest())).error_code == 0)
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


@pytest.mark.parametrize(("most_ms", "lifetime_ms"), [(0, 3_600_000), (60_000, 60_000), (9_000_000, 3_600_000)])
async def test_a_session_lasts_as_long_as_its_token_and_no_longer_than_is_allowed(
    keys: Path, most_ms: int, lifetime_ms: int
) -> None:
    config = _config(keys.as_uri(), connections_max_reauth_ms=most_ms)
    clock = ManualClock()
    async with AsyncBroker(config, clock=clock) as broker, WireClient(broker) as client:
        assert (await _authenticate(client, ISSUER.token())).session_lifetime_ms == lifetime_ms
        clock.advance(lifetime_ms)
        assert await _is_served(client)
        later = ISSUER.token(exp=clock.now_ms() // 1000 + 50)
        assert (await _authenticate(client, later)).session_lifetime_ms == 50_000
        clock.advance(50_000)
        assert await _is_served(client)
        clock.advance(1)
        assert not await _is_served(client)


async def test_a_token_that_only_the_clock_skew_lets_in_serves_for_no_time(keys: Path) -> None:
    clock = ManualClock()
    async with AsyncBroker(_config(keys.as_uri()), clock=clock) as broker, WireClient(broker) as client:
        clock.advance(3_600_000 + 29_000)
        answer = await _authenticate(client, ISSUER.token())
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        clock.advance(1)
        assert not await _is_served(client)


async def test_nobody_becomes_somebody_else_by_a_token(keys: Path) -> None:
    async with AsyncBroker(_config(keys.as_uri()), clock=ManualClock()) as broker:
        async with WireClient(broker) as client:
            assert (await _authenticate(client, ISSUER.token(), "bob")).error_code == 58
        async with WireClient(broker) as client:
            assert (await _authenticate(client, ISSUER.token(), "alice")).error_code == 0
            answer = await _authenticate(client, ISSUER.token(sub="bob"))
            assert (answer.error_code, "Cannot change principals" in (answer.error_message or "")) == (58, True)


async def test_a_client_renews_its_session_while_it_works(keys: Path) -> None:
    asked = []

    def token(text: str) -> str:
        asked.append(text)
        return _now(3)

    async with (
        AsyncBroker(_config(keys.as_uri())) as broker,
        AsyncAdmin({**_client(broker, ""), "oauth_cb": token}) as admin,
    ):
        await admin.describe_cluster()
        first = len(asked)
        while len(asked) < first + 2:
            await admin.describe_cluster()


class _Server:
    """What the endpoint answers, and how often it was asked."""

    def __init__(self) -> None:
        self.answer: tuple[int, str] = (200, ISSUER.jwks("one"))
        self.count = 0


@contextmanager
def _endpoint() -> Iterator[tuple[_Server, str]]:
    state = _Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.count += 1
            status, text = state.answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state, f"http://127.0.0.1:{server.server_port}/keys?secret=word"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_keys_come_from_a_server_and_are_read_again_and_a_failure_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with _endpoint() as (server, url):
        jwks = Jwks(Endpoint(url, refresh_ms=1, retry_backoff_ms=1, retry_backoff_max_ms=1), least_pause_s=0.001)
        await jwks.start()
        assert [key.key_id for key in jwks.keys] == ["one"]
        server.answer = (500, "")
        before = server.count
        await _until(lambda: server.count >= before + 3)
        assert [key.key_id for key in jwks.keys] == ["one"]
        server.answer = (200, ISSUER.jwks("two"))
        await _until(lambda: [key.key_id for key in jwks.keys] == ["two"])
        await jwks.stop()
    assert "is http: whoever can change what comes from http://127.0.0.1" in caplog.text
    assert "cannot be read from http://127.0.0.1" in caplog.text
    assert "secret" not in caplog.text


async def test_a_server_that_does_not_answer_at_the_start_is_asked_again() -> None:
    with _endpoint() as (server, url):
        server.answer = (503, "")
        jwks = Jwks(Endpoint(url, 3_600_000, 1, 1), least_pause_s=0.001)
        await jwks.start()
        assert len(jwks.keys) == 0
        server.answer = (200, ISSUER.jwks())
        await _until(lambda: len(jwks.keys) == 2)
        await jwks.stop()


async def test_a_token_of_a_new_key_has_the_keys_read_again(keys: Path) -> None:
    jwks = Jwks(Endpoint(_write(keys, ISSUER.jwks("one")), 3_600_000, 1, 1), least_pause_s=0.001)
    await jwks.start()
    _write(keys, ISSUER.jwks("two"))
    jwks.look_again()
    await _until(lambda: [key.key_id for key in jwks.keys] == ["two"])
    await jwks.stop()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, r"cannot be read from file://.*keys.json"),
        ("{}", "has no keys of tokens: it has no list of keys"),
        (" " * 1_048_577, "more than 1048576 bytes"),
    ],
    ids=["missing", "empty", "large"],
)
async def test_a_file_that_cannot_be_used_is_said_at_the_start(keys: Path, text: str | None, problem: str) -> None:
    url = keys.as_uri()
    keys.unlink() if text is None else _write(keys, text)  # noqa: ASYNC240
    with pytest.raises(KeysError, match=problem):
        await AsyncBroker(_config(url)).__aenter__()


@pytest.mark.parametrize(
    ("url", "problem"), [("", "needs sasl.oauthbearer.jwks.endpoint.url"), ("ftp://here/keys", "expected https://")]
)
async def test_a_url_that_cannot_be_used_is_said_at_the_start(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        await AsyncBroker(_config(url)).__aenter__()
