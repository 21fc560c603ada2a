"""The broker's halves: the vectors of RFC 7677, the client's half against them, and every wrong message refused."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.secret import Secret
from ottla.broker.metadata.records import UserScramCredentialRecord
from ottla.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.sasl import SCRAM_SHA_256, SCRAM_SHA_512, SaslError, SaslRefusedError
from ottla.wire.sasl.plain import PlainClient, PlainServer
from ottla.wire.sasl.scram import HASHES, Hash, ScramClient, ScramCredential, ScramServer, new_credential

_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
_PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
_SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def _server(
    hash_: Hash, users: dict[str, str], nonce: str = "server", *, salt: bytes = _SALT, iterations: int = 4096
) -> ScramServer:
    def find(user: str) -> tuple[ScramCredential, bool]:
        return new_credential(hash_, Secret(users.get(user, "")), salt, iterations), user in users

    return ScramServer(hash_, find, nonce)


def _rfc_7677() -> ScramServer:
    return _server(HASHES[SCRAM_SHA_256], {"user": "pencil"}, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")


def test_the_vector_of_rfc_7677() -> None:
    server = _rfc_7677()
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert server.answer(_FIRST) == first
    assert server.user is None
    assert server.answer(_PROOF) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@settings(max_examples=30)
@given(st.sampled_from([SCRAM_SHA_256, SCRAM_SHA_512]), _names, _names, st.binary(min_size=1, max_size=40))
def test_the_clients_half_and_the_brokers_agree(mechanism: str, user: str, password: str, salt: bytes) -> None:
    hash_ = HASHES[mechanism]
    server = _server(hash_, {user: password}, salt=salt)
    client = ScramClient(hash_, user, Secret(password), "client")
    proof = client.answer(server.answer(client.start()))
    assert proof is not None
    assert client.answer(server.answer(proof)) is None
    assert server.user == user


@settings(max_examples=20)
@given(_names, _names, _names)
def test_another_password_proves_nothing(user: str, right: str, wrong: str) -> None:
    hash_ = HASHES[SCRAM_SHA_256]
    server = _server(hash_, {user: right})
    client = ScramClient(hash_, user, Secret(wrong), "client")
    proof = client.answer(server.answer(client.start()))
    assert proof is not None
    if right == wrong:
        assert server.answer(proof)
        return
    with pytest.raises(SaslError) as refused:
        server.answer(proof)
    assert not isinstance(refused.value, SaslRefusedError), "the client is not told why"
    assert server.user is None


def test_a_user_who_does_not_exist_proves_nothing_even_with_the_right_keys() -> None:
    hash_ = HASHES[SCRAM_SHA_256]
    server = ScramServer(hash_, lambda user: (new_credential(hash_, Secret("x"), _SALT, 4096), False), "s")
    client = ScramClient(hash_, "user", Secret("x"), "c")
    proof = client.answer(server.answer(client.start()))
    assert proof is not None
    with pytest.raises(SaslError):
        server.answer(proof)
    assert server.user is None


def test_tokens_are_not_there() -> None:
    hash_ = HASHES[SCRAM_SHA_256]
    server = _server(hash_, {"user": "x"})
    client = ScramClient(hash_, "user", Secret("x"), "c", {"tokenauth": "true"})
    proof = client.answer(server.answer(client.start()))
    assert proof is not None
    with pytest.raises(SaslError):
        server.answer(proof)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=,r=x",
        b"n,,n=user",
        b"n,,r=x,n=user",
        b"p=tls-unique,,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=a b",
        b"\xff",
        b"n,,n=user,r=" + b"x" * 20_000,
        b"n,,n=user,r=x" + b",a=" * 5_000 + b",1",  # seen: the time doubled with each extension
    ],
)
def test_a_first_message_that_is_not_scrams(first: bytes) -> None:
    with pytest.raises(SaslError):
        _rfc_7677().answer(first)


def test_another_identity_is_not_given() -> None:
    with pytest.raises(SaslRefusedError, match="authorization id"):
        _rfc_7677().answer(b"n,a=admin,n=user,r=x")


@pytest.mark.parametrize(
    "final",
    [
        b"",
        _PROOF.replace(b"c=biws", b"c=eSws"),
        _PROOF.replace(b"%hvY", b"%hvZ"),
        _PROOF.replace(b"p=dH", b"p=!!"),
        _PROOF.replace(b"p=dHzb", b"p=dHzc"),
        _PROOF[:-8] + b"====",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + b64encode(b"x"),
        b"," * 16_000 + b"p=x",
    ],
)
def test_a_final_message_that_proves_nothing(final: bytes) -> None:
    server = _rfc_7677()
    server.answer(_FIRST)
    with pytest.raises(SaslError):
        server.answer(final)
    assert server.user is None


def test_an_exchange_serves_once() -> None:
    server = _rfc_7677()
    server.answer(_FIRST)
    server.answer(_PROOF)
    with pytest.raises(SaslError, match="is over"):
        server.answer(_FIRST)


def test_a_credential_does_not_show_itself() -> None:
    shown = repr(new_credential(HASHES[SCRAM_SHA_256], Secret("x"), _SALT, 4096))
    assert shown == "ScramCredential([hidden], iterations=4096)"


# PLAIN


def _plain() -> PlainServer:
    return PlainServer(lambda user, password: (user, password) == ("tim", Secret("tan\u017e")))


def test_plain() -> None:
    server = _plain()
    assert server.answer(PlainClient("tim", Secret("tan\u017e")).start()) == b""
    assert server.user == "tim"
    with pytest.raises(SaslError, match="is over"):
        server.answer(b"\0tim\0tan")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\0tim\0wrong", "Invalid username or password"),
        (b"\0nobody\0wrong", "Invalid username or password"),
        (b"\0\0x", "not specified"),
        (b"\0tim\0", "not specified"),
        ("jim\0tim\0tan\u017e".encode(), "authorization id"),
        (b"tim\0tan", "three parts"),
        (b"\0tim\0tan\0x", "three parts"),
        (b"\0\xff\0x", "UTF-8"),
        (b"\0" * 20_000, "at most"),
    ],
)
def test_plain_that_is_refused(message: bytes, why: str) -> None:
    server = _plain()
    with pytest.raises(SaslError, match=why):
        server.answer(message)
    assert server.user is None


@pytest.mark.parametrize(
    "made",
    [
        SaslAuthenticateRequest(b"\0alice\0hunter2"),
        SaslAuthenticateResponse(auth_bytes=b"v=hunter2"),
        ScramCredentialUpsertion("alice", 1, 4096, b"salt", b"hunter2"),
        UserScramCredentialRecord("alice", 1, b"salt", b"hunter2", b"hunter2", 4096),
    ],
    ids=lambda made: type(made).__name__,
)
def test_what_holds_a_secret_does_not_show_it(made: tuple[object, ...]) -> None:
    assert "hunter2" not in repr((made,))
    assert "hunter2" not in f"{made}"
    assert type(made).__name__ in repr(made)
