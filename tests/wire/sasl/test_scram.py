"""SCRAM: the vectors of RFC 5802 and RFC 7677, an independent server's half, and every wrong message refused."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.limits import MAX_SCRAM_ITERATIONS
from ottla.base.secret import Secret
from ottla.wire.sasl import SCRAM_SHA_256, SCRAM_SHA_512, SaslError
from ottla.wire.sasl.scram import HASHES, Hash, ScramClient, sasl_name

_SALT = b64encode(b"salt").decode()


@pytest.mark.parametrize(
    ("hash_", "nonce", "more", "salt", "proof", "signature"),
    [
        pytest.param(
            Hash("sha1"),
            "fyko+d2lbbFgONRv9qkxdawL",
            "3rfcNHYJY1ZVvWVs7j",
            "QSXCR+Q6sek8bf92",
            "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            id="RFC 5802, section 5",
        ),
        pytest.param(
            HASHES[SCRAM_SHA_256],
            "rOprNGfwEbeRWgbNEkqO",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
            "W22ZaJ0SNY7soEsUEjb6gQ==",
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            id="RFC 7677, section 3",
        ),
    ],
)
def test_the_vectors_of_the_standards(
    hash_: Hash, nonce: str, more: str, salt: str, proof: str, signature: str
) -> None:
    client = ScramClient(hash_, "user", Secret("pencil"), nonce)
    assert client.start() == f"n,,n=user,r={nonce}".encode()
    assert client.answer(f"r={nonce}{more},s={salt},i=4096".encode()) == f"c=biws,r={nonce}{more},p={proof}".encode()
    assert client.answer(f"v={signature}".encode()) is None


def _serve(name: str, password: str, first: bytes, more: str, salt: bytes) -> tuple[bytes, str, str]:
    """A server's half, written from RFC 5802 and not from our client's: its challenge, the proof it expects, its
    signature. The proof is computed the server's way round."""
    bare = first.decode().removeprefix("n,,")
    nonce = bare.split(",r=")[1].split(",")[0] + more
    challenge = f"r={nonce},s={b64encode(salt).decode()},i=4096"
    said = f"{bare},{challenge},c=biws,r={nonce}".encode()
    digest = getattr(hashlib, name)
    salted = block = hmac.new(password.encode(), salt + b"\0\0\0\1", digest).digest()
    number = int.from_bytes(salted, "big")
    for _ in range(4095):
        block = hmac.new(password.encode(), block, digest).digest()
        number ^= int.from_bytes(block, "big")
    salted = number.to_bytes(len(block), "big")
    key = hmac.new(salted, b"Client Key", digest).digest()
    stored = digest(key).digest()
    cover = hmac.new(stored, said, digest).digest()
    proof = b64encode(bytes(a ^ b for a, b in zip(key, cover, strict=True))).decode()
    server = hmac.new(hmac.new(salted, b"Server Key", digest).digest(), said, digest).digest()
    return challenge.encode(), proof, b64encode(server).decode()


@settings(max_examples=6, deadline=None)
@given(
    mechanism=st.sampled_from(sorted(HASHES)),
    username=st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
    password=st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
    salt=st.binary(min_size=1, max_size=20),
)
def test_any_name_and_password_prove_themselves(mechanism: str, username: str, password: str, salt: bytes) -> None:
    hash_ = HASHES[mechanism]
    client = ScramClient(hash_, username, Secret(password), "nonce")
    challenge, proof, signature = _serve(hash_.name, password, client.start(), "more", salt)
    final = client.answer(challenge)
    assert final is not None
    assert final.decode().rpartition(",p=")[2] == proof
    assert client.answer(f"v={signature}".encode()) is None


def test_the_signs_of_the_syntax_are_written_in_another_way_in_names() -> None:
    assert sasl_name("a,b=c=2C") == "a=2Cb=3Dc=3D2C"
    assert ScramClient(HASHES[SCRAM_SHA_512], "a,b", Secret("p"), "r").start() == b"n,,n=a=2Cb,r=r"


def test_a_delegation_token_says_so() -> None:
    client = ScramClient(HASHES[SCRAM_SHA_256], "u", Secret("p"), "r", {"tokenauth": "true"})
    assert client.start() == b"n,,n=u,r=r,tokenauth=true"


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"", "not SCRAM's"),
        (b"\xff", "not UTF-8"),
        (b"r=mine+more", "not SCRAM's"),
        (f"m=x,r=mine+more,s={_SALT},i=4096".encode(), "an extension"),
        (f"r=other,s={_SALT},i=4096".encode(), "does not continue"),
        (f"r=mine,s={_SALT},i=4096".encode(), "does not continue"),
        (f"s={_SALT},r=mine+more,i=4096".encode(), "no nonce"),
        (b"r=mine+more,s=*,i=4096", "not base 64"),
        ("r=mine+more,s=ü,i=4096".encode(), "not base 64"),
        (b"r=mine+more,s=,i=4096", "no salt"),
        (f"r=mine+more,s={_SALT},i=x".encode(), "no number"),
        (f"r=mine+more,s={_SALT},i=-4096".encode(), "no number"),
        (f"r=mine+more,s={_SALT},i=4095".encode(), "fewer than 4096"),
        (f"r=mine+more,s={_SALT},i={MAX_SCRAM_ITERATIONS + 1}".encode(), "more than"),
        (f"r=mine+more,s={_SALT},i={'9' * 5000}".encode(), "no number"),
        (b"r=mine+" + b"x" * 20_000, "bytes"),
    ],
)
def test_a_wrong_challenge_is_refused(challenge: bytes, why: str) -> None:
    client = ScramClient(HASHES[SCRAM_SHA_256], "user", Secret("hunter2"), "mine")
    client.start()
    with pytest.raises(SaslError, match=why) as refused:
        client.answer(challenge)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("final", "why"),
    [
        (b"e=invalid-proof", "refuses: 'invalid-proof'"),
        (b"v=" + b64encode(b"x" * 32), "not your broker"),
        (b"v=", "not your broker"),
        (b"", "no signature"),
        (b"v=*", "not base 64"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_refused(final: bytes, why: str) -> None:
    client = ScramClient(HASHES[SCRAM_SHA_256], "user", Secret("p"), "mine")
    client.start()
    client.answer(f"r=mine+more,s={_SALT},i=4096".encode())
    with pytest.raises(SaslError, match=why):
        client.answer(final)


def test_an_exchange_serves_once() -> None:
    client = ScramClient(HASHES[SCRAM_SHA_256], "user", Secret("p"), "mine")
    with pytest.raises(SaslError, match="none was due"):
        client.answer(b"")
    challenge, _, signature = _serve("sha256", "p", client.start(), "more", b64decode(_SALT))
    client.answer(challenge)
    client.answer(f"v={signature}".encode())
    with pytest.raises(SaslError, match="none was due"):
        client.answer(f"v={signature}".encode())
    with pytest.raises(SaslError, match="begun already"):
        client.start()
