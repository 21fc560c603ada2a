"""SPEC X1: two brokers, five clients, each protocol and mechanism. What should work works; what should not says why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from ottla import Admin
from ottla.client.errors import ClientError, SaslAuthenticationError, SslAuthenticationError
from tests.interop.secured.brokers import MECHANISMS, Secured, make_files, running
from tests.interop.secured.guests import GUESTS, Guest, keys_of
from tests.interop.secured.java import Jvm
from tests.interop.secured.where import RefusedError, Where

pytestmark = pytest.mark.interop

#: How long one tries again who is not let in.
_PATIENCE_S = 4.0
Fresh = Callable[[str], str]


@pytest.fixture(scope="module", params=["ottla", pytest.param("apache", marks=pytest.mark.slow)])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if request.param == "apache":
        request.getfixturevalue("apache_jars")
    with running(request.param, make_files(tmp_path_factory.mktemp("secured"))) as broker:
        yield broker


@pytest.fixture(scope="module")
def jvm(secured: Secured, apache_jars: str) -> Iterator[Jvm]:
    started = Jvm([secured.files.token_file(name) for name in secured.files.tokens])
    yield started
    started.stop()


@pytest.fixture(params=[*GUESTS, "java"])
def guest(request: pytest.FixtureRequest) -> Guest:
    if request.param != "java":
        return GUESTS[request.param]
    started: Jvm = request.getfixturevalue("jvm")
    return started.round_trip


def test_tls(secured: Secured, guest: Guest, fresh: Fresh) -> None:
    assert guest(secured.at("TLS"), fresh("tls")) == [b"hello"]


def test_mutual_tls(secured: Secured, guest: Guest, fresh: Fresh) -> None:
    assert guest(secured.at("MUTUAL", certificate="client"), fresh("mutual")) == [b"hello"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["PLAINSASL", "SASLTLS"])
def test_sasl(secured: Secured, guest: Guest, mechanism: str, listener: str, fresh: Fresh) -> None:
    assert guest(secured.at(listener, mechanism), fresh("sasl")) == [b"hello"]


#: librdkafka has one sentence for all certificates that it does not trust.
_NOT_VERIFIED = "could not be verified"
#: Two clients do not always hear what they are told: aiokafka neither the alert of a TLS handshake nor why a token is
#: refused (it takes that for metadata), and kafka-python may see the end of a connection before its last answer.
_DEAF = r"Connection at \S+ closed|No broker metadata found|socket disconnected"


def _refused(guest: Guest, where: Where, topic: str, caplog: pytest.LogCaptureFixture, why: str) -> str:
    """What a client says, or at least writes to its log."""
    with pytest.raises(RefusedError) as refused:
        guest(where._replace(patience_s=_PATIENCE_S), topic)
    said = f"{refused.value}\n{caplog.text}"
    assert re.search(why, said), said
    return said


@pytest.mark.parametrize(
    ("mechanism", "why"),
    [
        ("PLAIN", "Invalid username or password"),
        ("SCRAM-SHA-256", "invalid credentials"),
        ("SCRAM-SHA-512", "invalid credentials"),
        ("OAUTHBEARER", "invalid_token"),
    ],
)
def test_a_wrong_secret(
    secured: Secured, guest: Guest, mechanism: str, why: str, fresh: Fresh, caplog: pytest.LogCaptureFixture
) -> None:
    where = secured.at("SASLTLS", mechanism, secret="wrong")
    assert "hunter2" not in _refused(guest, where, fresh("wrong"), caplog, f"{why}|{_DEAF}")


def test_an_expired_token(secured: Secured, guest: Guest, fresh: Fresh, caplog: pytest.LogCaptureFixture) -> None:
    where = secured.at("PLAINSASL", "OAUTHBEARER", secret="expired")
    _refused(guest, where, fresh("expired"), caplog, f"invalid_token|{_DEAF}")


@pytest.mark.parametrize(
    ("listener", "authority", "why"),
    [
        ("EXPIRED", "authority", "has expired|validity check failed"),
        ("OTHERHOST", "authority", "for another host|Hostname mismatch|name matching localhost"),
        ("TLS", "stranger", "not known|self-signed certificate|unable to (get local issuer|find valid)"),
    ],
)
def test_a_brokers_certificate_that_cannot_be_trusted(
    secured: Secured,
    guest: Guest,
    listener: str,
    authority: str,
    why: str,
    fresh: Fresh,
    caplog: pytest.LogCaptureFixture,
) -> None:
    where = secured.at(listener, authority=authority)
    _refused(guest, where, fresh("untrusted"), caplog, f"{why}|{_NOT_VERIFIED}")


@pytest.mark.parametrize(
    ("certificate", "why"),
    [
        (None, "certificate required|bad certificate"),
        ("unknown", "unknown ca|certificate unknown|bad certificate"),
        ("expired-client", "certificate expired|certificate unknown"),
    ],
)
def test_a_clients_certificate_that_is_not_accepted(
    secured: Secured,
    guest: Guest,
    certificate: str | None,
    why: str,
    fresh: Fresh,
    caplog: pytest.LogCaptureFixture,
) -> None:
    where = secured.at("MUTUAL", certificate=certificate)
    _refused(guest, where, fresh("unknown"), caplog, f"(?i){why.replace(' ', '[ _]')}|{_DEAF}")


def test_our_client_says_what_is_wrong(secured: Secured) -> None:
    def refused(where: Where, kind: type[ClientError], words: str) -> None:
        with Admin({**keys_of(where), "default.api.timeout.ms": 3_000}) as admin, pytest.raises(kind, match=words):
            admin.list_topics()

    refused(secured.at("EXPIRED"), SslAuthenticationError, "has expired: it has to be renewed there")
    refused(secured.at("OTHERHOST"), SslAuthenticationError, "for another host")
    refused(secured.at("TLS", authority="stranger"), SslAuthenticationError, "authority that is not known here")
    refused(secured.at("PLAINSASL", "PLAIN", secret="wrong"), SaslAuthenticationError, "Invalid username or password")
    refused(secured.at("PLAINSASL", "SCRAM-SHA-256", secret="wrong"), SaslAuthenticationError, "invalid credentials")
    refused(secured.at("TLS")._replace(protocol="PLAINTEXT", authority=None), ClientError, "security.protocol")
    refused(secured.at("MUTUAL"), SslAuthenticationError, "asks for a certificate of this client")
    refused(
        secured.at("MUTUAL", certificate="unknown"),
        SslAuthenticationError,
        "does not (know the authority|trust the one)",
    )
