"""SPEC X1: contexts from PEM files and texts, and handshakes with servers that a client must not trust."""

import asyncio
import ssl
from pathlib import Path

import pytest

from ottla.base.errors import ConfigError
from ottla.base.secret import Secret
from ottla.client.config.security import Tls
from ottla.client.errors import ClientError, DisconnectedError, SslAuthenticationError
from ottla.client.net.connection import connect
from ottla.client.net.tls import tls_context
from tests.client.certificates import Authority


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an authority, a stranger, and certificates: good, expired, early, other, sealed."""
    directory = tmp_path_factory.mktemp("pem")
    authority = Authority(directory, "authority")
    Authority(directory, "stranger")
    authority.certificate("good", host="127.0.0.1")
    authority.certificate("expired", host="127.0.0.1", days=(-9, -1))
    authority.certificate("early", host="127.0.0.1", days=(5, 9))
    authority.certificate("other", host="kafka.example")
    authority.certificate("sealed", password="hunter2")
    return directory


async def _shake(pem: Path, certificate: str, tls: Tls) -> None:
    """Connect to a server with this certificate, which says nothing after the handshake and closes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem / f"{certificate}.pem")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        await connect("127.0.0.1", server.sockets[0].getsockname()[1], "me", 20_000, 20_000, tls_context(tls))


@pytest.mark.parametrize(
    ("certificate", "authority", "why"),
    [
        ("expired", "authority", "has expired"),
        ("early", "authority", "not valid yet"),
        ("other", "authority", "for another host.*ssl.endpoint.identification.algorithm"),
        ("good", "stranger", "not known here.*ssl.ca.location"),
    ],
)
async def test_x1_a_certificate_that_cannot_be_trusted(pem: Path, certificate: str, authority: str, why: str) -> None:
    with pytest.raises(SslAuthenticationError, match=why):
        await _shake(pem, certificate, Tls(ca_file=str(pem / f"{authority}.pem")))


@pytest.mark.parametrize(
    ("certificate", "tls"),
    [
        ("good", Tls()),
        ("other", Tls(check_host=False)),
        ("expired", Tls(check_host=False, verify=False)),
    ],
)
async def test_x1_a_handshake_that_succeeds(pem: Path, certificate: str, tls: Tls) -> None:
    """The server ends the connection after it, before it says anything of Kafka."""
    trusting = Tls(ca_pem=(pem / "authority.pem").read_text(), check_host=tls.check_host, verify=tls.verify)
    with pytest.raises(DisconnectedError, match="was lost"):
        await _shake(pem, certificate, trusting)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_x1_a_broker_that_does_not_speak_tls(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        with pytest.raises(ClientError, match=r"does not speak TLS|speaks no TLS") as said:
            await connect("127.0.0.1", server.sockets[0].getsockname()[1], "me", 20_000, 20_000, tls_context(Tls()))
    assert "()" not in str(said.value)


async def test_x1_a_broker_that_answers_plain_text_by_a_tls_alert() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x50")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        with pytest.raises(SslAuthenticationError, match="speaks TLS, and this client does not"):
            await connect("127.0.0.1", server.sockets[0].getsockname()[1], "me", 20_000, 20_000)


def test_x1_keys_from_texts_and_in_one_line(pem: Path) -> None:
    whole = (pem / "sealed.pem").read_text()
    for text in (whole, " ".join(whole.split("\n"))):
        tls_context(Tls(certificate_pem=text, key_pem=Secret(text), key_password=Secret("hunter2")))
    authority = (pem / "authority.pem").read_text().replace("\n", " ")
    assert len(tls_context(Tls(ca_pem=authority)).get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (Tls(ca_file="absent.pem"), "absent.pem.*no such file"),
        (Tls(ca_pem="hunter2"), "ssl.ca.pem"),
        (Tls(certificate_file="absent.pem"), "absent.pem.*no such file"),
        (Tls(certificate_pem="x", key_pem=Secret("hunter2")), "ssl.certificate.pem"),
    ],
)
def test_x1_pem_that_cannot_be_read(tls: Tls, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        tls_context(tls)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("password", [None, Secret("other-hunter2")])
def test_x1_a_sealed_key_needs_its_password(pem: Path, password: Secret | None) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is missing or wrong"):
        tls_context(Tls(certificate_file=str(pem / "sealed.pem"), key_password=password))


def test_x1_a_key_of_another_certificate(pem: Path) -> None:
    with pytest.raises(ConfigError, match="does not belong"):
        tls_context(Tls(certificate_file=str(pem / "good.pem"), key_file=str(pem / "other.pem")))


def test_x1_versions_of_tls() -> None:
    context = tls_context(Tls(versions=("TLSv1.3",)))
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)
    assert tls_context(Tls()).minimum_version == ssl.TLSVersion.TLSv1_2
