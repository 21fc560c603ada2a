"""PLAIN and OAUTHBEARER: their messages, and what cannot be sent."""

import pytest

from ottla.base.secret import Secret
from ottla.wire.sasl import SaslError, SaslRefusedError
from ottla.wire.sasl.oauthbearer import Accepted, OAuthBearerClient, OAuthBearerServer
from ottla.wire.sasl.plain import PlainClient


def test_plain_is_the_message_of_rfc_4616() -> None:
    client = PlainClient("tim", Secret("tanstaafltanstaafl"))
    assert client.start() == b"\0tim\0tanstaafltanstaafl"
    assert client.answer(b"") is None


@pytest.mark.parametrize(("username", "password"), [("a\0b", "p"), ("a", "p\0q")])
def test_a_nul_would_end_a_part_of_plain(username: str, password: str) -> None:
    with pytest.raises(SaslError, match="NUL"):
        PlainClient(username, Secret(password))


def test_plain_expects_no_words() -> None:
    with pytest.raises(SaslError, match="3 bytes"):
        PlainClient("a", Secret("b")).answer(b"abc")


def test_oauthbearer_is_the_message_of_rfc_7628() -> None:
    client = OAuthBearerClient(Secret("abc.def-1=="), {"logicalCluster": "lkc-1", "identityPoolId": "pool"})
    said = b"n,,\x01auth=Bearer abc.def-1==\x01logicalCluster=lkc-1\x01identityPoolId=pool\x01\x01"
    assert client.start() == said
    assert client.answer(b"") is None


@pytest.mark.parametrize(
    ("refusal", "why"),
    [(b'{"status":"invalid_token"}', "invalid_token"), (b"no\x1b[31m", "no"), (b"[1]", "1"), (b"[" * 9000, ".")],
)
def test_a_refused_token_is_answered_by_one_byte(refusal: bytes, why: str) -> None:
    client = OAuthBearerClient(Secret("t"))
    assert client.answer(refusal) == b"\x01"
    with pytest.raises(SaslError, match=why) as refused:
        client.answer(b"")
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "ü", "=a"])
def test_a_token_that_cannot_be_sent(token: str) -> None:
    with pytest.raises(SaslError, match="RFC 6750") as refused:
        OAuthBearerClient(Secret(token))
    assert not token or repr(token) not in str(refused.value)


@pytest.mark.parametrize("extension", [("auth", "x"), ("a b", "x"), ("a", ""), ("a", "x\x01"), ("", "x")])
def test_an_extension_that_cannot_be_sent(extension: tuple[str, str]) -> None:
    with pytest.raises(SaslError):
        OAuthBearerClient(Secret("t"), dict([extension]))


def _server(user: str = "alice") -> OAuthBearerServer:
    def check(token: str) -> Accepted:
        if token != "good":
            raise SaslError("it is not the good one")
        return Accepted(user, 7_000)

    return OAuthBearerServer(check)


def test_our_halves_of_oauthbearer_understand_each_other() -> None:
    server, client = _server(), OAuthBearerClient(Secret("good"), {"traceId": "a=b c"})
    assert client.answer(server.answer(client.start())) is None
    assert (server.user, server.expires_ms) == ("alice", 7_000)


def test_a_refused_token_is_told_as_json_and_then_as_an_error() -> None:
    server, client = _server(), OAuthBearerClient(Secret("bad"))
    challenge = server.answer(client.start())
    assert challenge == b'{"status":"invalid_token"}'
    word = client.answer(challenge)
    assert word == b"\x01"
    with pytest.raises(SaslRefusedError, match="invalid_token") as refused:
        server.answer(word)
    assert "the good one" not in str(refused.value)
    assert str(refused.value.__cause__) == "it is not the good one"
    assert server.user is None


@pytest.mark.parametrize(
    ("name", "is_good"),
    [(b"", True), (b"a=al=2Cice=3D", True), (b"a=bob", False), (b"a=", False), (b"a=al,ice=", False)],
)
def test_a_name_beside_the_token_must_be_the_tokens(name: bytes, is_good: bool) -> None:
    server = _server("al,ice=")
    message = b"n," + name + b",\x01auth=bearer good\x01\x01"
    if is_good:
        assert server.answer(message) == b""
    else:
        with pytest.raises(SaslError):
            server.answer(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"good",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer good",
        b"n,,\x01\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01\x01\x01",
        b"n,,\x01auth=Bearer good" + b"\x01a" * 50_000 + b"\x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer g\xff\x01\x01",
    ],
)
def test_what_is_no_message_of_oauthbearer_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError):
        _server().answer(message)


def test_oauthbearer_is_over_after_the_token() -> None:
    server = _server()
    server.answer(b"n,,\x01auth=Bearer good\x01\x01")
    with pytest.raises(SaslError, match="is over"):
        server.answer(b"n,,\x01auth=Bearer good\x01\x01")
