"""SASL of a listener: who is let in, what is answered before, refusals of one shape, sessions that end (X2)."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import AsyncIterator

import pytest

from ottla import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    DeleteScramCredential,
    NewTopic,
    ScramMechanism,
    SetScramCredential,
)
from ottla.base.clock import ManualClock
from ottla.base.errors import ConfigError, CorruptDataError
from ottla.base.limits import MAX_FIELD_BYTES
from ottla.base.secret import Secret
from ottla.broker.access.audit import Audit
from ottla.broker.answers import Frame, Last
from ottla.broker.authentication.sasl import Gate, Sasl
from ottla.broker.config import BrokerConfig
from ottla.broker.config_keys import STANDARD_AUTHORIZER
from ottla.broker.session import ANONYMOUS, Session
from ottla.client.errors import KafkaError, SaslAuthenticationError
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from ottla.wire.sasl.scram import HASHES, ScramClient
from tests.broker.wire_client import WireClient

_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_JAAS = f'{_MODULE} required user_alice="alice-hunter2" user_bob="bob-hunter2";'
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
    "connection.failed.authentication.delay.ms": "0",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(CONFIG) as running:
        yield running


async def _set(broker: AsyncBroker, user: str, password: str) -> None:
    async with AsyncAdmin({"bootstrap.servers": broker.listener("PLAINTEXT")}) as admin:
        for mechanism in ScramMechanism:
            await admin.alter_user_scram_credentials([SetScramCredential(user, mechanism, Secret(password), 4096)])


def _client(
    broker: AsyncBroker, mechanism: str, user: str = "alice", password: str = "alice-hunter2"
) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.listener("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", _MECHANISMS)
async def test_who_proves_it_is_let_in(broker: AsyncBroker, mechanism: str) -> None:
    await _set(broker, "alice", "alice-hunter2")
    common = _client(broker, mechanism)
    async with AsyncAdmin(common) as admin:
        await admin.create_topics([NewTopic("t")])
    async with AsyncProducer(common) as producer:
        await (await producer.send("t", b"x" * 700_000))
    async with AsyncConsumer({**common, "auto.offset.reset": "earliest", "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        assert [len(record.value or b"") for record in await consumer.poll(60.0)] == [700_000]


@pytest.mark.parametrize("mechanism", _MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "not-hunter2"), ("nobody", "alice-hunter2")])
async def test_who_does_not_is_refused_in_the_same_words(
    broker: AsyncBroker, mechanism: str, user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await _set(broker, "alice", "alice-hunter2")
    words = (
        "Invalid username or password"
        if mechanism == "PLAIN"
        else f"invalid credentials with SASL mechanism {mechanism}"
    )
    with pytest.raises(SaslAuthenticationError, match=words):
        async with AsyncAdmin(_client(broker, mechanism, user, password)) as admin:
            await admin.describe_cluster()
    assert any("could not authenticate by listener SASL_PLAINTEXT" in each for each in caplog.messages)
    assert password not in caplog.text


async def test_a_user_is_a_principal_of_the_authorizer() -> None:
    access = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:alice"}
    async with AsyncBroker({**CONFIG, **access}) as broker:
        async with AsyncAdmin(_client(broker, "PLAIN")) as admin:
            await admin.create_topics([NewTopic("t")])
        async with AsyncAdmin(_client(broker, "PLAIN", "bob", "bob-hunter2")) as admin:
            with pytest.raises(KafkaError, match="AUTHORIZATION_FAILED"):
                await admin.create_topics([NewTopic("u")])


async def test_users_come_and_go_and_are_there_after_a_restart(broker: AsyncBroker) -> None:
    await _set(broker, "carol", "first")
    await _set(broker, "carol", "second")
    await broker.stop()
    await broker.start()
    async with AsyncAdmin({"bootstrap.servers": broker.listener("PLAINTEXT")}) as admin:
        both = {ScramMechanism.SCRAM_SHA_256: 4096, ScramMechanism.SCRAM_SHA_512: 4096}
        assert await admin.describe_user_scram_credentials() == {"carol": both}
        async with AsyncAdmin(_client(broker, "SCRAM-SHA-256", "carol", "second")) as carol:
            await carol.describe_cluster()
        await admin.alter_user_scram_credentials([DeleteScramCredential("carol", ScramMechanism.SCRAM_SHA_256)])
        assert await admin.describe_user_scram_credentials(["carol"]) == {"carol": {ScramMechanism.SCRAM_SHA_512: 4096}}
        with pytest.raises(KafkaError, match="RESOURCE_NOT_FOUND"):
            await admin.describe_user_scram_credentials(["dave"])
    with pytest.raises(SaslAuthenticationError):
        async with AsyncAdmin(_client(broker, "SCRAM-SHA-256", "carol", "second")) as carol:
            await carol.describe_cluster()


# request by request


class _Address:
    def __init__(self, broker: AsyncBroker, name: str = "SASL_PLAINTEXT") -> None:
        self.host, _, port = broker.listener(name).rpartition(":")
        self.port = int(port)


async def _plain(client: WireClient, message: bytes, version: int = 2) -> object:
    shaken = await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"), 1)
    assert shaken.error_code == ErrorCode.NONE
    return await client.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(message), version)


async def test_before_it_is_known_who_asks_nothing_else_is_answered(broker: AsyncBroker) -> None:
    async with WireClient(_Address(broker)) as client:
        assert await client.ask_api_versions()
        await client.send(ApiKey.METADATA, MetadataRequest())
        assert await client.drained() == b""
    async with WireClient(_Address(broker)) as client:
        await client.send(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(b"\0alice\0alice-hunter2"))
        assert await client.drained() == b""
    async with WireClient(_Address(broker)) as client:
        await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"))
        await client.send(ApiKey.API_VERSIONS, ApiVersionsRequest("test", "1"))
        assert await client.drained() == b""


async def test_what_comes_behind_a_refusal_is_not_answered(broker: AsyncBroker) -> None:
    async with WireClient(_Address(broker)) as client:
        refused = await _plain(client, b"\0alice\0wrong")
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED  # type: ignore[attr-defined]
        assert await client.drained() == b""


async def test_a_mechanism_that_is_not_enabled_is_told_which_are(broker: AsyncBroker) -> None:
    async with WireClient(_Address(broker)) as client:
        shaken = await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("GSSAPI"))
        assert shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert shaken.mechanisms == _MECHANISMS
        assert await client.drained() == b""


async def test_a_large_frame_is_refused_before_it_is_known_who_sends_it(broker: AsyncBroker) -> None:
    async with WireClient(_Address(broker)) as client:
        await client.send_bytes(struct.pack(">i", 524_289))
        assert await client.drained() == b""
    async with WireClient(_Address(broker)) as client:
        await _plain(client, b"\0alice\0alice-hunter2")
        await client.send_bytes(struct.pack(">i", 524_289))
        await client.send_bytes(bytes(524_289))
        assert await client.drained() == b"", "it was read, and made no sense"


async def test_a_listener_without_sasl_says_so(broker: AsyncBroker) -> None:
    async with WireClient(_Address(broker, "PLAINTEXT")) as client:
        shaken = await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"))
        assert shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE
        said = await client.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(b""))
        assert said.error_code == ErrorCode.ILLEGAL_SASL_STATE


async def test_messages_without_headers_after_a_handshake_of_version_0(broker: AsyncBroker) -> None:
    async with WireClient(_Address(broker)) as client:
        await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"), 0)
        token = b"\0alice\0alice-hunter2"
        await client.send_bytes(struct.pack(">i", len(token)) + token)
        assert await client.frame() == b""
        assert await client.ask(ApiKey.METADATA, MetadataRequest())
    async with WireClient(_Address(broker)) as client:
        await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"), 0)
        await client.send_bytes(struct.pack(">i", 3) + b"abc")
        assert await client.drained() == b""


async def _first_of_scram(broker: AsyncBroker, user: str) -> tuple[str, int, int]:
    """Salt, length of the nonce, iterations of the broker's first message."""
    async with WireClient(_Address(broker)) as client:
        await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("SCRAM-SHA-256"))
        first = ScramClient(HASHES["SCRAM-SHA-256"], user, Secret("x"), "nonce").start()
        said = await client.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(first))
    nonce, salt, iterations = said.auth_bytes.decode().split(",")
    return salt, len(nonce) // 8, int(iterations[2:])


async def test_a_user_who_does_not_exist_has_a_salt_that_stays(broker: AsyncBroker) -> None:
    await _set(broker, "alice", "alice-hunter2")
    known, unknown = await _first_of_scram(broker, "alice"), await _first_of_scram(broker, "nobody")
    assert (len(known[0]), *known[1:]) == (len(unknown[0]), *unknown[1:])
    await broker.stop()
    await broker.start()
    assert (await _first_of_scram(broker, "nobody"))[0] == unknown[0]
    assert (await _first_of_scram(broker, "no one"))[0] != unknown[0]


async def test_users_who_do_not_exist_look_like_any_of_those_who_do(broker: AsyncBroker) -> None:
    async with AsyncAdmin({"bootstrap.servers": broker.listener("PLAINTEXT")}) as admin:
        for name, iterations in (("alice", 4096), ("bob", 8192), ("carol", 8192)):
            new = SetScramCredential(name, ScramMechanism.SCRAM_SHA_256, Secret("hunter2"), iterations)
            await admin.alter_user_scram_credentials([new])
        names = [f"nobody-{number}" for number in range(20)]
        shapes = {name: (await _first_of_scram(broker, name))[1:] for name in names}
        assert {iterations for _, iterations in shapes.values()} == {4096, 8192}
        assert {name: (await _first_of_scram(broker, name))[1:] for name in names} == shapes
        await admin.alter_user_scram_credentials([DeleteScramCredential("alice", ScramMechanism.SCRAM_SHA_256)])
        assert {(await _first_of_scram(broker, name))[2] for name in names} == {8192}


@pytest.mark.parametrize("more", [{"authorizer.class.name": STANDARD_AUTHORIZER}, {"audit.log.path": "a"}], ids=str)
async def test_the_audit_log_has_who_could_not_log_in(more: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncBroker({**CONFIG, **more}) as broker:
        with caplog.at_level("INFO", "ottla.audit"), pytest.raises(SaslAuthenticationError):
            async with AsyncAdmin(_client(broker, "PLAIN", "alice", "not-hunter2")) as admin:
                await admin.describe_cluster()
    assert "hunter2" not in caplog.text
    lines = [json.loads(each.getMessage()) for each in caplog.records if each.name == "ottla.audit"]
    [line] = [each for each in lines if each["result"] == "UNAUTHENTICATED"]
    assert (line["listener"], line["mechanism"], line["host"]) == ("SASL_PLAINTEXT", "PLAIN", "127.0.0.1")
    assert line["principal"] == "User:ANONYMOUS"
    assert line["reason"] == "there is no user 'alice' with this password"


def test_a_line_of_the_audit_log_is_short_whatever_a_stranger_says(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "ottla.audit"):
        Audit(ManualClock(), with_allowed=False).unauthenticated(Session("X", "/x"), "M" * 10_000, "\n" * 10_000)
    [line] = [each.getMessage() for each in caplog.records]
    assert "\n" not in line
    assert len(line) < 1_000


# sessions


async def test_a_session_ends_unless_the_client_authenticates_again() -> None:
    clock = ManualClock()
    limit = {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "60000"}
    async with AsyncBroker({**CONFIG, **limit}, clock=clock) as broker, WireClient(_Address(broker)) as client:
        said = await _plain(client, b"\0alice\0alice-hunter2")
        assert said.session_lifetime_ms == 60_000  # type: ignore[attr-defined]
        clock.advance(59_000)
        assert await client.ask(ApiKey.METADATA, MetadataRequest())
        await _plain(client, b"\0alice\0alice-hunter2")
        clock.advance(59_000)
        assert await client.ask(ApiKey.METADATA, MetadataRequest())
        clock.advance(2_000)
        await client.send(ApiKey.METADATA, MetadataRequest())
        assert await client.drained() == b""


@pytest.mark.parametrize("version", [0, 1])
async def test_who_says_again_who_it_is_says_it_in_few_bytes(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """It is known, so that its frames may be of 100 MB: they were copied, and only then refused."""
    async with WireClient(_Address(broker)) as client:
        await _plain(client, b"\0alice\0alice-hunter2")
        await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"), version)
        await client.send(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(bytes(MAX_FIELD_BYTES)))
        assert await client.is_closed()
    (line,) = [each.getMessage() for each in caplog.records if each.name == "ottla.broker.connections"]
    assert f"bytes that say who it is, at most {MAX_FIELD_BYTES} are read" in line


async def test_nobody_becomes_somebody_else(broker: AsyncBroker) -> None:
    async with WireClient(_Address(broker)) as client:
        await _plain(client, b"\0alice\0alice-hunter2")
        said = await _plain(client, b"\0bob\0bob-hunter2")
        assert said.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED  # type: ignore[attr-defined]
        assert "from User.alice: User.bob" in said.error_message  # type: ignore[attr-defined]
        assert await client.drained() == b""


async def test_who_does_not_say_who_it_is_is_closed_in_time() -> None:
    clock = ManualClock()
    async with AsyncBroker(CONFIG, clock=clock) as broker, WireClient(_Address(broker)) as client:
        await client.ask_api_versions()
        assert broker._app is not None
        clock.advance(61_000)
        broker._app._connections.close_idle()
        assert await client.drained() == b""


# frames of any kind


def _frames() -> list[bytes]:
    """What a client may send, right and wrong, without lengths."""
    asked: list[tuple[ApiKey, int, tuple[object, ...]]] = [
        (ApiKey.API_VERSIONS, 3, ApiVersionsRequest("test", "1")),
        (ApiKey.METADATA, 12, MetadataRequest()),
        *((ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(each)) for each in _MECHANISMS for version in (0, 1)),
        *(
            (ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(b"\0alice\0alice-hunter2"))
            for version in (0, 1, 2)
        ),
        (ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(b"n,,n=alice,r=nonce")),
        (ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(b"c=biws,r=nonce,p=AAAA")),
    ]
    return [encode_request(key, version, 7, "test", message)[4:] for key, version, message in asked]


async def test_no_frame_gets_past_and_none_does_more_than_close(broker: AsyncBroker) -> None:
    config = BrokerConfig({**CONFIG, "log.dirs": "x"})
    sasl = Sasl(config, config.listeners[0], broker.node.image, ManualClock(), random.Random(1), secret=b"s")
    known: list[str] = []

    def dispatch(frame: Frame, session: Session, /) -> None:
        if session.principal == ANONYMOUS:
            assert int.from_bytes(frame[:2], "big") == ApiKey.API_VERSIONS, "nobody has said who this is"
        else:
            known.append(session.principal)

    rng, frames = random.Random(13), _frames()
    for _ in range(3_000):
        gate, session = Gate(sasl, dispatch, lambda: None), Session("SASL_PLAINTEXT", "/x")
        for _ in range(rng.randint(1, 5)):
            frame = bytearray(rng.choice(frames))
            if rng.random() < 0.4:
                frame[rng.randrange(len(frame))] = rng.randrange(256)
            if rng.random() < 0.1:
                del frame[rng.randrange(len(frame)) :]
            try:
                answer = gate(bytes(frame), session)
            except CorruptDataError:
                break
            if isinstance(answer, Last):
                answer.future.cancel()
                break
    assert known, "some have said who they are, and then their requests were handed on"
    assert set(known) == {"User:alice"}


# keys


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms has GSSAPI; there are PLAIN"),
        ({"sasl.enabled.mechanisms": ""}, "has nothing"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": None}, "is missing: it has the users of PLAIN"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "a.B required x;"}, "login modules that are known"),
        ({"listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": _JAAS}, "its login module is for PLAIN"),
        ({"listener.name.sasl_plaintext.sasl.jaas.config": _JAAS}, "the mechanism is missing in it"),
    ],
)
async def test_keys_that_do_not_fit_are_refused(change: dict[str, str | None], problem: str) -> None:
    given = {name: value for name, value in {**CONFIG, **change}.items() if value is not None}
    with pytest.raises(ConfigError, match=problem) as refused:
        await AsyncBroker(given).start()
    assert "alice-hunter2" not in str(refused.value)
