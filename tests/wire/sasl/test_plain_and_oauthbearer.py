"""PLAIN and OAUTHBEARER: their messages, and what cannot be sent."""

import pytest

from ottla.base.secret import Secret
from ottla.wire.sasl import SaslError
from ottla.wire.sasl.oauthbearer import OAuthBearerClient
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
