"""What a broker asks of a token (OAUTHBEARER): whose it is, until when it counts; as Kafka's BrokerJwtValidator. Pure.

The signature is PyJWT's to verify, by keys of a JWKS (RFC 7517) alone: algorithms with a shared secret, and none, are
refused whatever the token says. Times are compared here, because the time is an argument.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jwt

from ottla.base.limits import MAX_TOKEN_BYTES, MAX_TOKEN_KEYS
from ottla.wire.sasl import SaslError
from ottla.wire.sasl.oauthbearer import Accepted

#: By a private key that only the issuer has.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: One kind of key serves them all; a curve has one algorithm.
_RSA: Final = ALGORITHMS[:6]
#: What is not asked of PyJWT: its clock is the machine's, and its audience one.
_UNCHECKED: Final[Any] = {f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}
_SHOWN: Final = 50
#: Shorter keys have been too weak since 2013 (NIST SP 800-131A), and RS256 asks for as many (RFC 7518, section 3.3).
_LEAST_RSA_BITS: Final = 2_048


class UnknownKeyError(SaslError):
    """A token names a key that is not there: it may be a new one."""


class Expected(NamedTuple):
    """What a token must have, by the settings `sasl.oauthbearer.…` of these names."""

    audience: tuple[str, ...] = ()
    issuer: str | None = None
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"
    clock_skew_s: int = 30


class TokenKey(NamedTuple):
    """A public key: its `kid`, and by which algorithms it verifies."""

    key_id: str | None
    algorithms: tuple[str, ...]
    key: Any


def read_keys(text: str | bytes, tell: Callable[[str], object] = str) -> tuple[TokenKey, ...]:
    """The keys of a JWKS that can verify something; `tell` hears of those that are too weak.

    ValueError where it is none, or has no such key.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it has no list of keys")
    keys, weak = [], []
    for each in listed[:MAX_TOKEN_KEYS]:
        if not isinstance(each, dict) or each.get("kty") == "oct" or each.get("use", "sig") != "sig":
            continue
        try:
            found = jwt.PyJWK.from_dict(each)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue  # a kind of key that is not known here; others may do
        if found.algorithm_name in _RSA and found.key.key_size < _LEAST_RSA_BITS:
            weak.append(f"{str(found.key_id)[:_SHOWN]!a} ({found.key.key_size} bits)")
            continue
        named = each.get("alg")
        of_kind = _RSA if found.algorithm_name in _RSA else (found.algorithm_name,)
        keys.append(TokenKey(found.key_id, of_kind if named is None else (str(named),), found.key))
    if weak:
        about = f"RSA keys of less than {_LEAST_RSA_BITS} bits are not used: {', '.join(weak)}"
        if not keys:
            raise ValueError(about)
        tell(about)
    if not keys:
        raise ValueError(f"none of its {len(listed)} keys can verify a signature")
    return tuple(keys)


def check_token(token: str, keys: Sequence[TokenKey], expected: Expected, now_ms: int) -> Accepted:
    """Whose token it is, and until when it counts (UTC milliseconds).

    Raises SaslError with the reason, which is for the log; UnknownKeyError if it names a key that is not among `keys`.
    """
    if len(token) > MAX_TOKEN_BYTES:
        raise SaslError(f"the token has {len(token)} characters")
    claims = _verified(token, keys)
    expires_ms = _time(claims, "exp")
    issued_ms = _time(claims, "iat")
    skew_ms = expected.clock_skew_s * 1000
    if expires_ms is None or issued_ms is None:
        raise SaslError("the token does not say when it was issued and until when it counts (iat, exp)")
    if now_ms - skew_ms >= expires_ms:
        raise SaslError("the token has expired")
    not_before_ms = _time(claims, "nbf")
    if not_before_ms is not None and now_ms + skew_ms < not_before_ms:
        raise SaslError("the token does not count yet (nbf)")
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        raise SaslError("the token is of another issuer (sasl.oauthbearer.expected.issuer)")
    if expected.audience and not set(expected.audience) & _texts(claims, "aud"):
        raise SaslError("the token is for somebody else (sasl.oauthbearer.expected.audience)")
    _texts(claims, expected.scope_claim_name)
    subject = claims.get(expected.sub_claim_name)
    if not isinstance(subject, str) or not subject.strip():
        raise SaslError(f"the token does not say whose it is (its claim {expected.sub_claim_name})")
    return Accepted(subject.strip(), expires_ms)


def _verified(token: str, keys: Sequence[TokenKey]) -> Mapping[str, Any]:
    try:
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise SaslError("it is no JSON Web Token") from None
    if algorithm not in ALGORITHMS:
        raise SaslError(f"tokens signed by {str(algorithm)[:_SHOWN]!a} are not accepted")
    named = [key for key in keys if key_id is None or key.key_id == key_id]
    if not named:
        raise UnknownKeyError(f"there is no key {str(key_id)[:_SHOWN]!a} in the JWKS")
    for key in named:
        if algorithm not in key.algorithms:
            continue
        try:
            claims: Mapping[str, Any] = jwt.decode(token, key.key, algorithms=[algorithm], options=_UNCHECKED)
        except (jwt.InvalidSignatureError, jwt.InvalidKeyError, TypeError):
            continue  # another key's, perhaps
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise SaslError("it is no JSON Web Token") from None
        return claims
    raise SaslError("the token's signature is not of a key in the JWKS")


def _time(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**43:
        raise SaslError(f"the token's {name} is no time")
    return int(value * 1000)


def _texts(claims: Mapping[str, Any], name: str) -> set[str]:
    value = claims.get(name, [])
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise SaslError(f"the token's {name} is neither a text nor a list of texts")
    return set(texts)
