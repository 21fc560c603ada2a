"""Who is refused in the TLS handshake is told why, with asyncio's loop and with uvloop's."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from ottla import AsyncAdmin
from ottla.client.errors import SslAuthenticationError
from ottla.testing import AsyncBroker
from tests.client.certificates import Authority

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
_ANY_LOOP = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("alerts")
    ours, theirs = Authority(directory, "authority"), Authority(directory, "stranger")
    ours.certificate("here", host="127.0.0.1")
    ours.certificate("late", days=(-9, -1))
    theirs.certificate("unknown")
    return directory


def _broker(directory: Path) -> AsyncBroker:
    return AsyncBroker(
        {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(directory / "here.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / "authority.pem"),
            "ssl.client.auth": "required",
        }
    )


async def _told(directory: Path, certificate: str | None, said: bytes) -> str:
    context = ssl.create_default_context(cafile=str(directory / "authority.pem"))
    if certificate is not None:
        context.load_cert_chain(str(directory / f"{certificate}.pem"))
    async with _broker(directory) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(said)
        with pytest.raises(ssl.SSLError) as refused:
            await reader.read()
        writer.close()
        return str(refused.value.reason)


@_ANY_LOOP
@pytest.mark.parametrize("said", [b"", bytes(100_000)], ids=["silent", "talking"])
@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (None, "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
        ("late", "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
        ("unknown", "TLSV1_ALERT_UNKNOWN_CA"),
    ],
)
def test_a_refused_client_is_told_why(
    directory: Path, certificate: str | None, reason: str, said: bytes, loop: LoopFactory
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(_told(directory, certificate, said)) == reason


async def test_our_client_says_it_and_does_not_come_again(directory: Path) -> None:
    async with _broker(directory) as broker:
        keys = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(directory / "authority.pem"),
        }
        with pytest.raises(SslAuthenticationError, match="asks for a certificate of this client"):
            async with AsyncAdmin(keys):
                pass


async def _says(keys: dict[str, str], words: str) -> None:
    with pytest.raises(SslAuthenticationError, match=words):
        async with AsyncAdmin(keys):
            pass


@_ANY_LOOP
def test_a_client_without_tls_is_told_that_the_broker_speaks_it(directory: Path, loop: LoopFactory) -> None:
    async def ask() -> None:
        async with _broker(directory) as broker:
            await _says({"bootstrap.servers": broker.bootstrap_servers}, "speaks TLS, and this client does not")

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(ask())


@_ANY_LOOP
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_client_with_tls_is_told_that_the_broker_speaks_none(
    directory: Path, protocol: str, loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask() -> None:
        config = {"listeners": f"{protocol}://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
        async with AsyncBroker(config) as broker:
            keys = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SSL"}
            trust = {"ssl.ca.location": str(directory / "authority.pem")}
            await _says({**keys, **trust}, "does not speak TLS, and this client does")

    with caplog.at_level("INFO"), asyncio.Runner(loop_factory=loop) as runner:
        runner.run(ask())
    assert "it speaks TLS, and this listener does not" in caplog.text
