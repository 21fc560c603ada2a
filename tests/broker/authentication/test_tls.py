"""A listener with TLS (X2): what it needs, who is let in under which name, certificates that change, handshakes."""

from __future__ import annotations

import asyncio
import select
import shutil
import socket
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer, ConfigResource, NewTopic, ResourceType
from ottla.base.clock import ManualClock, SystemClock
from ottla.base.errors import ConfigError
from ottla.base.limits import HANDSHAKES_AT_ONCE
from ottla.broker.authentication.tls import ServerTls, make_context, tls_keys
from ottla.broker.config import BrokerConfig
from ottla.broker.config_keys import STANDARD_AUTHORIZER
from ottla.broker.connections import Connections
from ottla.broker.tls_listener import TlsListener
from ottla.client.errors import KafkaError
from ottla.testing import AsyncBroker
from tests.broker.wire_client import WireClient
from tests.client.certificates import Authority


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of the broker and of clients, and those who have signed them."""
    directory = tmp_path_factory.mktemp("tls")
    ours, theirs = Authority(directory, "authority"), Authority(directory, "stranger")
    ours.certificate("here", host="127.0.0.1")
    ours.certificate("newer", host="127.0.0.1")
    ours.certificate("sealed", host="127.0.0.1", password="key-hunter2")
    ours.certificate("alice")
    ours.certificate("bob")
    ours.certificate("late", days=(-9, -1))
    theirs.certificate("unknown")
    return directory


def _config(directory: Path, **more: object) -> dict[str, object]:
    """A broker with TLS; keys with underscores for dots."""
    keys = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "here.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "authority.pem"),
    }
    return {**keys, **{name.replace("_", "."): value for name, value in more.items()}}


def _client(broker: AsyncBroker, directory: Path, certificate: str | None = None) -> dict[str, object]:
    keys: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(directory / "authority.pem"),
    }
    return keys if certificate is None else {**keys, "ssl.certificate.location": str(directory / f"{certificate}.pem")}


def _context(directory: Path, certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(directory / "authority.pem"))
    if certificate is not None:
        context.load_cert_chain(str(directory / f"{certificate}.pem"))
    return context


async def test_records_go_in_and_come_out_more_than_one_turn_encrypts(directory: Path) -> None:
    values = [bytes([number]) * 300_000 for number in range(10)]
    async with AsyncBroker(_config(directory)) as broker:
        common = _client(broker, directory)
        async with AsyncAdmin(common) as admin:
            await admin.create_topics([NewTopic("t")])
        async with AsyncProducer(common) as producer:
            await asyncio.gather(*[await producer.send("t", value) for value in values])
        large = {"fetch.max.bytes": 10_000_000, "max.partition.fetch.bytes": 10_000_000}
        async with AsyncConsumer({**common, **large, "auto.offset.reset": "earliest", "group.id": "g"}) as consumer:
            consumer.subscribe(["t"])
            read: list[bytes | None] = []
            while len(read) < len(values):
                read += [record.value for record in await consumer.poll(60.0)]
        assert read == values


async def test_a_clients_name_is_its_certificates(directory: Path) -> None:
    """The authorizer lets the one in whom it knows, and nobody else."""
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U"}
    access = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ALICE"}
    config = {**_config(directory, ssl_client_auth="required"), **rules, **access}
    async with AsyncBroker(config) as broker:
        async with AsyncAdmin(_client(broker, directory, "alice")) as admin:
            await admin.create_topics([NewTopic("t")])
        async with AsyncAdmin(_client(broker, directory, "bob")) as admin:
            with pytest.raises(KafkaError, match="AUTHORIZATION_FAILED"):
                await admin.create_topics([NewTopic("u")])


@pytest.mark.parametrize("asked", ["none", "requested"])
async def test_without_a_certificate_a_client_is_nobody(directory: Path, asked: str) -> None:
    access = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    config = {**_config(directory, ssl_client_auth=asked), **access}
    async with AsyncBroker(config) as broker, AsyncAdmin(_client(broker, directory)) as admin:
        await admin.create_topics([NewTopic("t")])


@pytest.mark.parametrize("certificate", [None, "late", "unknown"])
async def test_who_shows_no_certificate_or_a_wrong_one_is_not_let_in(directory: Path, certificate: str | None) -> None:
    async with AsyncBroker(_config(directory, ssl_client_auth="required")) as broker:
        with pytest.raises((OSError, EOFError)):
            async with WireClient(broker, tls=_context(directory, certificate)) as refused:
                await refused.ask_api_versions()
        async with WireClient(broker, tls=_context(directory, "alice")) as client:
            assert await client.ask_api_versions()


async def test_a_certificate_without_a_rule_is_nobodys_and_not_let_in(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    config = {**_config(directory, ssl_client_auth="required"), "ssl.principal.mapping.rules": "RULE:^OU=(.*)$/$1/"}
    async with AsyncBroker(config) as broker, WireClient(broker, tls=_context(directory, "alice")) as client:
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await client.ask_api_versions()
    assert any("no rule of ssl.principal.mapping.rules is about 'CN=alice'" in each for each in caplog.messages)


async def _serial(broker: AsyncBroker, directory: Path) -> object:
    async with WireClient(broker, tls=_context(directory)) as client:
        await client.ask_api_versions()
        return client._writer.get_extra_info("peercert")["serialNumber"]


async def test_a_certificate_that_changes_on_the_disk_is_taken_up(
    directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store.pem"
    shutil.copy(directory / "here.pem", store)
    async with (
        AsyncBroker(_config(directory, ssl_keystore_location=str(store))) as broker,
        WireClient(broker, tls=_context(directory)) as earlier,
    ):
        first = await _serial(broker, directory)
        shutil.copy(directory / "newer.pem", store)
        second = await _serial(broker, directory)
        assert second != first
        store.write_text("half a certificate")
        assert await _serial(broker, directory) == second
        assert await _serial(broker, directory) == second
        assert await earlier.ask_api_versions(), "who was there before stays"
    told = [each for each in caplog.messages if "stays in use" in each]
    assert len(told) == 1, told


async def _until_closed(address: tuple[str, int], said: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(said)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def _listener(directory: Path, handshake_ms: int, **limits: int) -> tuple[TlsListener, Connections]:
    config = BrokerConfig(_config(directory))
    clock = SystemClock()
    connections = Connections(clock, max_connections=limits.get("max_connections", 10), max_idle_ms=-1)
    listener = TlsListener(lambda frame, session: None, clock, connections, name="SSL", max_request_bytes=100)
    return listener.secure(ServerTls(tls_keys(config, config.listeners[0])), handshake_ms), connections


async def test_a_handshake_that_never_ends_is_given_up(directory: Path) -> None:
    listener, connections = _listener(directory, handshake_ms=50, max_connections=1)
    address = await listener.bind("127.0.0.1", 0, 10)
    await listener.listen()
    try:
        assert await _until_closed(address) == b""
        assert not connections.is_full, "its place is free again"
    finally:
        listener.stop()
        await listener.stopped()


async def test_a_handshake_that_has_not_ended_counts_as_a_connection(directory: Path) -> None:
    listener, connections = _listener(directory, handshake_ms=60_000, max_connections=1)
    address = await listener.bind("127.0.0.1", 0, 10)
    await listener.listen()
    _, writer = await asyncio.open_connection(*address)
    while not connections.is_full:  # noqa: ASYNC110 - the listener tells nobody
        await asyncio.sleep(0)
    assert await _until_closed(address) == b""
    writer.close()
    listener.stop()
    await listener.stopped()
    assert not connections.is_full


def _hello(tls: ssl.SSLContext) -> bytes:
    """What a client says first."""
    nothing, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        tls.wrap_bio(nothing, said, server_hostname="127.0.0.1").do_handshake()
    return said.read()


async def test_few_handshakes_begin_in_a_turn_although_many_clients_speak_at_one_moment(directory: Path) -> None:
    """Each signs. A hundred with a key of RSA 4096 kept the loop for half a second."""
    count = 24
    listener, connections = _listener(directory, handshake_ms=60_000, max_connections=count)
    address = await listener.bind("127.0.0.1", 0, count)
    await listener.listen()
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(count)]
        while not connections.is_full:  # noqa: ASYNC110 - the listener tells nobody
            await asyncio.sleep(0)
        for each in clients:
            each.sendall(_hello(_context(directory)))
        answered, waiting = [], clients
        while waiting:
            await asyncio.sleep(0)
            heard, _, _ = select.select(waiting, (), (), 0)
            answered.append(len(heard))
            waiting = [each for each in waiting if each not in heard]
    assert max(answered) <= HANDSHAKES_AT_ONCE
    listener.stop()
    await listener.stopped()


async def test_who_is_refused_gets_no_handshake_and_who_has_to_wait_gets_it_later(directory: Path) -> None:
    config = _config(directory) | {
        "max.connections.per.ip": 2,
        "max.connection.creation.rate": 1,
        "quota.window.num": 2,
    }
    async with AsyncBroker(config, clock=ManualClock()) as broker:
        tls = _context(directory)
        async with WireClient(broker, tls=tls) as first, WireClient(broker, tls=tls) as second:
            assert await first.ask_api_versions()
            assert await second.ask_api_versions()
            with pytest.raises((ConnectionError, ssl.SSLError)):
                async with WireClient(broker, tls=tls):
                    pass


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x10\0\x12\0\0" + bytes(12), b"\x16\x03\x01\xff\xff"]
)
async def test_who_does_not_speak_tls_is_told_in_the_log_and_disturbs_nobody(
    directory: Path, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    listener, connections = _listener(directory, handshake_ms=50)
    address = await listener.bind("127.0.0.1", 0, 10)
    await listener.listen()
    await _until_closed(address, said)
    _, writer = await asyncio.open_connection(*address, ssl=_context(directory))
    writer.close()
    connections.close()
    listener.stop()
    await listener.stopped()
    assert any("the TLS handshake of /127.0.0.1 by listener SSL has failed" in each for each in caplog.messages)


# keys


def _keys(directory: Path, change: dict[str, object]) -> Any:
    given = {**_config(directory), **change}
    config = BrokerConfig({name: value for name, value in given.items() if value is not None})
    return make_context(tls_keys(config, config.listeners[0]))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"ssl.keystore.type": None}, "ssl.keystore.location with ssl.keystore.type=JKS: only PEM.*keytool"),
        ({"ssl.truststore.type": "PKCS12"}, "ssl.truststore.location with ssl.truststore.type=PKCS12.*keytool"),
        ({"ssl.keystore.location": None}, "a certificate is missing"),
        ({"ssl.keystore.key": "x"}, "ssl.keystore.location and ssl.keystore.key are both given"),
        ({"ssl.keystore.password": "word-hunter2"}, "ssl.key.password is for the key"),
        ({"ssl.truststore.location": None, "ssl.client.auth": "required"}, "needs the authorities"),
        ({"ssl.keystore.location": "/nowhere/x.pem"}, r"cannot be read \(/nowhere/x.pem\): there is no such file"),
        ({"ssl.truststore.location": "/nowhere/y.pem"}, "authorities to trust cannot be read.*no such file"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_MD5"}, "is not known here; there are"),
        ({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, "cannot choose among the suites of TLS 1.3"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.2"}, "none of TLS 1.2"),
        ({"ssl.enabled.protocols": ""}, "is empty"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "is no rule"),
    ],
)
def test_keys_that_do_not_fit_are_refused(directory: Path, change: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        _keys(directory, change)
    assert "word-hunter2" not in str(refused.value)


def test_a_sealed_key_needs_its_password(directory: Path) -> None:
    sealed: dict[str, object] = {"ssl.keystore.location": str(directory / "sealed.pem")}
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is missing or wrong"):
        _keys(directory, sealed)
    _keys(directory, {**sealed, "ssl.key.password": "key-hunter2"})


def test_texts_instead_of_files(directory: Path) -> None:
    pem = (directory / "here.pem").read_text()
    key, _, rest = pem.partition("-----BEGIN CERTIFICATE")
    texts: dict[str, object] = {
        "ssl.keystore.location": None,
        "ssl.truststore.location": None,
        "ssl.keystore.key": key.replace("\n", " "),
        "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE" + rest,
        "ssl.truststore.certificates": (directory / "authority.pem").read_text(),
        "ssl.client.auth": "required",
    }
    context = _keys(directory, texts)
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_versions_and_suites(directory: Path) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    context = _keys(directory, {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": suite})
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    older = [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"]
    assert older == ["ECDHE-ECDSA-AES256-GCM-SHA384"]


def test_a_listeners_own_keys_win() -> None:
    config = BrokerConfig(
        {
            "listeners": "SSL://:1,INSIDE://:2",
            "listener.security.protocol.map": "SSL:SSL,INSIDE:SSL",
            "ssl.client.auth": "required",
            "listener.name.inside.ssl.client.auth": "none",
        }
    )
    assert [config.asks_who_they_are(each) for each in config.listeners] == [True, False]


async def test_passwords_are_in_no_answer(directory: Path) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    async with (
        AsyncBroker(_config(directory, ssl_key_password="word-hunter2")) as broker,
        AsyncAdmin(_client(broker, directory)) as admin,
    ):
        settings = (await admin.describe_configs([resource]))[resource]
    assert settings["ssl.key.password"].value is None
    assert "word-hunter2" not in repr(settings)


def test_passwords_are_in_no_repr(directory: Path) -> None:
    config = BrokerConfig(_config(directory, ssl_key_password="word-hunter2"))
    assert "word-hunter2" not in repr(tls_keys(config, config.listeners[0]))
