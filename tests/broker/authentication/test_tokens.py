"""Tokens of OAUTHBEARER: which are accepted, and why others are not."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.limits import MAX_TOKEN_BYTES
from ottla.broker.authentication.tokens import Expected, UnknownKeyError, check_token, read_keys
from ottla.wire.sasl import SaslError
from tests.broker.authentication.token_issuer import NOW_S, Issuer

_NOW_MS = NOW_S * 1000
ISSUER, STRANGER = Issuer(), Issuer()
KEYS = read_keys(ISSUER.jwks())


@pytest.mark.parametrize(
    "token",
    [
        ISSUER.token(),
        ISSUER.token("two"),
        ISSUER.token(algorithm="PS512"),
        ISSUER.token(None),
        ISSUER.token(None, algorithm="RS384"),
        ISSUER.token(scope="a b"),
        ISSUER.token(scope=["a", "b"]),
        ISSUER.token(nbf=NOW_S + 29),
    ],
)
def test_a_token_of_the_issuer_is_accepted(token: str) -> None:
    assert check_token(token, KEYS, Expected(), _NOW_MS) == ("alice", (NOW_S + 3600) * 1000)


def _forged() -> str:
    """Signed with the public key as if it were a shared secret."""
    return _signed({"alg": "HS256", "kid": "one"}, b"signature")


def _signed(header: dict[str, Any], signature: bytes) -> str:
    claims = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 3600}
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "no JSON Web Token"),
        ("a.b.c", "no JSON Web Token"),
        ("x" * (MAX_TOKEN_BYTES + 1), f"{MAX_TOKEN_BYTES + 1} characters"),
        (_forged(), "'HS256' are not accepted"),
        (_signed({"alg": "none"}, b""), "'none' are not accepted"),
        (_signed({"alg": "RS256", "kid": "one"}, b"x" * 256), "signature is not of a key"),
        (STRANGER.token(), "signature is not of a key"),
        (STRANGER.token(None), "signature is not of a key"),
        (ISSUER.token("one")[:-4] + "AAAA", "signature is not of a key"),
        (ISSUER.token(exp=None), "does not say when"),
        (ISSUER.token(iat=None), "does not say when"),
        (ISSUER.token(exp="soon"), "exp is no time"),
        (ISSUER.token(exp=NOW_S - 30), "expired"),
        (ISSUER.token(nbf=NOW_S + 31), "does not count yet"),
        (ISSUER.token(sub=None), "does not say whose it is (its claim sub)"),
        (ISSUER.token(sub=" "), "does not say whose it is"),
        (ISSUER.token(sub=7), "does not say whose it is"),
        (ISSUER.token(scope=[7]), "scope is neither a text nor"),
    ],
)
def test_others_are_refused_with_the_reason(token: str, why: str) -> None:
    with pytest.raises(SaslError) as refused:
        check_token(token, KEYS, Expected(), _NOW_MS)
    assert why in str(refused.value)
    assert len(str(refused.value)) < 200


def test_a_key_that_is_not_there_is_told_apart() -> None:
    with pytest.raises(UnknownKeyError, match="no key 'one'"):
        check_token(ISSUER.token(), read_keys(ISSUER.jwks("two")), Expected(), _NOW_MS)


def test_a_key_is_used_for_its_own_algorithm_only() -> None:
    keys = read_keys(ISSUER.jwks("one", alg="RS512"))
    assert check_token(ISSUER.token(algorithm="RS512"), keys, Expected(), _NOW_MS).user == "alice"
    with pytest.raises(SaslError, match="signature is not of a key"):
        check_token(ISSUER.token(), keys, Expected(), _NOW_MS)


def test_a_short_rsa_key_verifies_nothing_and_is_named() -> None:
    weak = Issuer()
    weak.rsa = rsa.generate_private_key(public_exponent=65_537, key_size=1024)
    told: list[str] = []
    keys = read_keys(weak.jwks(), told.append)
    assert [key.key_id for key in keys] == ["two"]
    assert told == ["RSA keys of less than 2048 bits are not used: 'one' (1024 bits)"]
    with pytest.raises(ValueError, match="'one'"):
        read_keys(weak.jwks("one"))


@pytest.mark.parametrize(
    ("claims", "is_good"),
    [
        ({"iss": "https://us", "aud": "kafka"}, True),
        ({"iss": "https://us", "aud": ["others", "kafka"]}, True),
        ({"iss": "https://us", "aud": "others"}, False),
        ({"iss": "https://us"}, False),
        ({"iss": "https://them", "aud": "kafka"}, False),
        ({"aud": "kafka"}, False),
    ],
)
def test_issuer_and_audience_must_be_the_expected_ones(claims: dict[str, Any], is_good: bool) -> None:
    expected = Expected(("kafka", "ottla"), "https://us")
    token = ISSUER.token(**claims)
    if is_good:
        assert check_token(token, KEYS, expected, _NOW_MS).user == "alice"
    else:
        with pytest.raises(SaslError, match="expected"):
            check_token(token, KEYS, expected, _NOW_MS)


def test_claims_may_have_other_names_and_the_clock_another_skew() -> None:
    expected = Expected(sub_claim_name="client_id", clock_skew_s=0)
    assert check_token(ISSUER.token(client_id="app"), KEYS, expected, _NOW_MS).user == "app"
    with pytest.raises(SaslError, match="expired"):
        check_token(ISSUER.token(client_id="app", exp=NOW_S), KEYS, expected, _NOW_MS)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{}", "no list of keys"),
        ("[]", "no list of keys"),
        ('{"keys": []}', "none of its 0 keys"),
        ('{"keys": [7, {"kty": "oct", "k": "c2VjcmV0"}, {"kty": "RSA", "n": "!"}]}', "none of its 3 keys"),
        (ISSUER.jwks(use="enc"), "none of its 2 keys"),
    ],
)
def test_what_has_no_keys_is_said(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_keys(text)


@given(
    st.text(max_size=80)
    | st.lists(st.binary(max_size=40), min_size=3, max_size=3).map(
        lambda parts: ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    )
)
def test_no_token_at_all_is_a_refusal_and_nothing_else(token: str) -> None:
    with pytest.raises(SaslError):
        check_token(token, KEYS, Expected(), _NOW_MS)


@given(
    st.dictionaries(
        st.sampled_from(["sub", "iat", "exp", "nbf", "iss", "aud", "scope"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=5)
        | st.lists(st.integers() | st.text(max_size=3)),
    )
)
def test_whatever_the_issuer_claims_it_is_a_user_or_a_refusal(claims: dict[str, Any]) -> None:
    token = jwt.api_jws.encode(json.dumps(claims).encode(), ISSUER.rsa, "RS256", {"kid": "one"})
    try:
        accepted = check_token(token, KEYS, Expected(), _NOW_MS)
    except SaslError:
        return
    assert accepted.user.strip()
    assert accepted.expires_ms > _NOW_MS - 30_000
