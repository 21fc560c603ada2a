"""Issues tokens, and says by which keys they are verified."""

from __future__ import annotations

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.marked import MARK

NOW_S = 1_700_000_000


class Issuer:
    """Its keys are `one` (an RSA key) and `two` (of the curve P-256)."""

    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
        self.curve = ec.generate_private_key(ec.SECP256R1())

    def jwks(self, *key_ids: str, **more: Any) -> str:
        """The public keys of these names; `more` are further fields of each."""
        keys = {
            "one": RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True),
            "two": ECAlgorithm.to_jwk(self.curve.public_key(), as_dict=True),
        }
        return json.dumps({"keys": [{**keys[each], "kid": each, **more} for each in key_ids or keys]})

    def token(self, key_id: str | None = "one", algorithm: str | None = None, **claims: Any) -> str:
        """A token of alice's that counts for an hour; a claim that is None is left out. It has the mark of secrets."""
        said = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 3600, "jti": f"token-{MARK}", **claims}
        key: Any = self.curve if key_id == "two" else self.rsa
        headers = {} if key_id is None else {"kid": key_id}
        payload = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(payload, key, algorithm or ("ES256" if key_id == "two" else "RS256"), headers)
