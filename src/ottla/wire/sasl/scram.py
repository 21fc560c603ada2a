"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677, KIP-84): both sides prove that they know the password, and
nobody sends it.

    client → broker   n,,n=user,r=<client's nonce>
    broker → client   r=<both nonces>,s=<salt>,i=<iterations>
    client → broker   c=biws,r=<both nonces>,p=<the client's proof>
    broker → client   v=<the broker's signature>

Like Apache Kafka, and unlike RFC 5802, this takes names and passwords as they are, without SASLprep: a broker that has
stored the keys of a password as it is would refuse the prepared one. There is no channel binding, as Kafka has none.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from ottla.base.limits import MAX_SASL_MESSAGE_BYTES, MAX_SCRAM_ITERATIONS
from ottla.base.secret import Secret
from ottla.wire.sasl import SCRAM_SHA_256, SCRAM_SHA_512, SaslError, SaslRefusedError

#: "No channel binding, no other identity", and the same in base 64.
_GS2_HEADER: Final = "n,,"
_CHANNEL: Final = b64encode(_GS2_HEADER.encode()).decode()
#: What a nonce may consist of (RFC 5802, section 7: printable, but no comma).
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_COUNT = re.compile(r"[1-9][0-9]{0,9}")
_SHOWN = 200


class Hash(NamedTuple):
    """The hash of a mechanism, by hashlib's name, and the fewest iterations that are safe with it."""

    name: str
    least_iterations: int = 4_096


HASHES: Final[Mapping[str, Hash]] = {SCRAM_SHA_256: Hash("sha256"), SCRAM_SHA_512: Hash("sha512")}


#: Kafka's numbers of the mechanisms, in requests and records.
MECHANISM_NUMBERS: Final[Mapping[str, int]] = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
#: Apache Kafka stores no credential with more iterations.
MOST_STORED_ITERATIONS: Final = 16_384
#: What our own tools store. A thief of the metadata log needs as many steps for each password that he tries.
USUAL_ITERATIONS: Final = 8_192
#: Bytes of a salt.
SALT_BYTES: Final = 16


# what both sides compute (RFC 5802, section 3)


def salted_password(hash_: Hash, password: Secret, salt: bytes, iterations: int) -> bytes:
    """`SaltedPassword`. Takes time in proportion to `iterations`: about a millisecond for 4,096."""
    return hashlib.pbkdf2_hmac(hash_.name, password.reveal().encode(), salt, iterations)


def client_key(hash_: Hash, salted: bytes) -> bytes:
    """`ClientKey`, which proves that the client knows the password."""
    return hmac.digest(salted, b"Client Key", hash_.name)


def stored_key(hash_: Hash, client: bytes) -> bytes:
    """`StoredKey`, by which a broker checks a proof."""
    return hashlib.new(hash_.name, client).digest()


def server_key(hash_: Hash, salted: bytes) -> bytes:
    """`ServerKey`, by which a broker signs."""
    return hmac.digest(salted, b"Server Key", hash_.name)


def client_proof(hash_: Hash, client: bytes, auth_message: bytes) -> bytes:
    """`ClientProof`: the client's key, covered by a signature that only the stored key can make."""
    signature = hmac.digest(stored_key(hash_, client), auth_message, hash_.name)
    return bytes(a ^ b for a, b in zip(client, signature, strict=True))


def sasl_name(username: str) -> str:
    """A user name as messages hold it: comma and equals sign are written in another way."""
    return username.replace("=", "=3D").replace(",", "=2C")


class ScramCredential(NamedTuple):
    """What a broker keeps of a password. Whoever has it can pass for the broker, but not for the user."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential([hidden], iterations={self.iterations})"


def credential_of(hash_: Hash, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    stored = stored_key(hash_, client_key(hash_, salted))
    return ScramCredential(salt, stored, server_key(hash_, salted), iterations)


def new_credential(hash_: Hash, password: Secret, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password. `salt` must be drawn anew."""
    return credential_of(hash_, salted_password(hash_, password, salt, iterations), salt, iterations)


# the client's half


class _State(Enum):
    NEW = "new"
    FIRST_SENT = "the first message is sent"
    PROOF_SENT = "the proof is sent"
    DONE = "done"


class ScramClient:
    """The client's half of one exchange."""

    def __init__(
        self,
        hash_: Hash,
        username: str,
        password: Secret,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """`nonce` must be drawn anew for every exchange, from a source that nobody can predict. `extensions` are
        Kafka's: `tokenauth=true` says that user and password are a delegation token (KIP-48)."""
        self._hash = hash_
        self._password = password
        self._nonce = nonce
        more = "".join(f",{name}={value}" for name, value in (extensions or {}).items())
        self._first = f"n={sasl_name(username)},r={nonce}{more}"
        self._state = _State.NEW
        self._signature = b""

    def start(self) -> bytes:
        if self._state is not _State.NEW:
            raise SaslError("this exchange has begun already")
        self._state = _State.FIRST_SENT
        return (_GS2_HEADER + self._first).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        match self._state:
            case _State.FIRST_SENT:
                message = self._prove(_text(challenge))
                self._state = _State.PROOF_SENT
                return message
            case _State.PROOF_SENT:
                self._verify(_text(challenge))
                self._state = _State.DONE
                return None
            case _:
                raise SaslError(f"the broker has sent a message when none was due ({self._state.value})")

    def _prove(self, server_first: str) -> bytes:
        nonce, salt, iterations = self._challenge(server_first)
        without_proof = f"c={_CHANNEL},r={nonce}"
        auth_message = f"{self._first},{server_first},{without_proof}".encode()
        salted = salted_password(self._hash, self._password, salt, iterations)
        proof = client_proof(self._hash, client_key(self._hash, salted), auth_message)
        self._signature = hmac.digest(server_key(self._hash, salted), auth_message, self._hash.name)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _challenge(self, server_first: str) -> tuple[str, bytes, int]:
        """Nonce, salt and iterations of the broker's first message."""
        parts = server_first.split(",")
        if parts[0].startswith("m="):
            raise SaslError("the broker asks for an extension of SCRAM that this client does not have")
        if len(parts) < 3:
            raise SaslError("the broker's first message is not SCRAM's: nonce, salt and iterations are expected")
        nonce = _attribute(parts[0], "r", "nonce")
        if not _NONCE.fullmatch(nonce) or not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslError("the broker's nonce does not continue the client's: somebody may be listening in between")
        salt = _bytes(_attribute(parts[1], "s", "salt"), "salt")
        count = _attribute(parts[2], "i", "number of iterations")
        if not salt or not _COUNT.fullmatch(count):
            raise SaslError("the broker's first message has no salt, or no number of iterations")
        iterations = int(count)
        least = self._hash.least_iterations
        if iterations < least:
            raise SaslError(f"the broker asks for {iterations} iterations: fewer than {least} protect no password")
        if iterations > MAX_SCRAM_ITERATIONS:
            raise SaslError(f"the broker asks for {iterations} iterations, more than {MAX_SCRAM_ITERATIONS}")
        return nonce, salt, iterations

    def _verify(self, server_final: str) -> None:
        said = server_final.split(",")[0]
        if said.startswith("e="):
            raise SaslError(f"the broker refuses: {said[2:_SHOWN]!a}")
        signature = _bytes(_attribute(said, "v", "signature"), "signature")
        if not hmac.compare_digest(signature, self._signature):
            raise SaslError("the broker's signature is wrong: it does not know the password, so it is not your broker")


# the broker's half

#: The client's first message: no channel binding, perhaps another identity, the user, the nonce, extensions. No part
#: may match in two ways: anybody may send this, and the time would double with each extension.
_CLIENT_FIRST = re.compile(
    r"(?P<header>[ny],(?:a=(?P<other>(?:[^,=]|=2C|=3D)+))?,)"
    r"(?P<bare>n=(?P<user>(?:[^,=]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<more>(?:,[A-Za-z][^,]*)*))",
    re.DOTALL,
)
_CLIENT_FINAL = re.compile(
    r"(?P<bare>c=(?P<channel>[^,]+),r=(?P<nonce>[^,]+)(?:,[^,]+)*?),p=(?P<proof>[^,]+)", re.DOTALL
)


class ScramServer:
    """The broker's half of one exchange."""

    def __init__(self, hash_: Hash, find: Callable[[str], tuple[ScramCredential, bool]], nonce: str) -> None:
        """`find` gives a user's credential, and whether there is such a user. For one who does not exist it gives a
        credential that looks like any other, so that the exchange does. `nonce` must be drawn anew."""
        self._hash = hash_
        self._find = find
        self._nonce = nonce
        self._claimed = ""
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._channel = self._first = ""
        self.user: str | None = None

    def answer(self, message: bytes) -> bytes:
        if self.user is not None:
            raise SaslError("SCRAM is over after two messages")
        text = _text(message)
        return self._begin(text) if self._credential is None else self._check(text, self._credential)

    def _begin(self, client_first: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(client_first)
        if found is None:
            raise SaslError("the client's first message is not SCRAM's")
        user, other = _plain_name(found["user"]), _plain_name(found["other"] or "")
        if other not in ("", user):
            raise SaslRefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._claimed = user
        self._credential, self._is_known = self._find(user)
        if "tokenauth=true" in found["more"].split(","):
            self._is_known = False  # delegation tokens (KIP-48) are not there
        self._channel = b64encode(found["header"].encode()).decode()
        self._nonce = found["nonce"] + self._nonce
        salt = b64encode(self._credential.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._first = f"{found['bare']},{server_first}"
        return server_first.encode()

    def _check(self, client_final: str, credential: ScramCredential) -> bytes:
        found = _CLIENT_FINAL.fullmatch(client_final)
        if found is None or found["channel"] != self._channel:
            raise SaslError("the client's final message is not SCRAM's, or has another channel binding")
        if found["nonce"] != self._nonce:
            raise SaslError("the client's final message has another nonce")
        auth_message = f"{self._first},{found['bare']}".encode()
        signature = hmac.digest(credential.stored_key, auth_message, self._hash.name)
        proof = _bytes(found["proof"], "proof")
        if len(proof) != len(signature):
            raise SaslError(f"the client's proof has {len(proof)} bytes")
        client = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(stored_key(self._hash, client), credential.stored_key)
        if not (is_right and self._is_known):
            raise SaslError(f"{self._claimed[:_SHOWN]!a} does not exist, or has another password")
        self.user = self._claimed
        answer = hmac.digest(credential.server_key, auth_message, self._hash.name)
        return f"v={b64encode(answer).decode()}".encode()


def _plain_name(name: str) -> str:
    """The other way round than `sasl_name`."""
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    if len(message) > MAX_SASL_MESSAGE_BYTES:
        raise SaslError(f"a message of {len(message)} bytes; SCRAM's have {MAX_SASL_MESSAGE_BYTES} at most")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError("a message is not UTF-8") from None


def _attribute(part: str, letter: str, what: str) -> str:
    if not part.startswith(f"{letter}="):
        raise SaslError(f"the broker's message has no {what} where SCRAM has it")
    return part[2:]


def _bytes(text: str, what: str) -> bytes:
    try:
        return b64decode(text.encode(), validate=True)
    except ValueError:
        raise SaslError(f"the {what} is not base 64") from None
