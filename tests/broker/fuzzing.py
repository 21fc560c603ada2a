"""What a fuzzer sends: requests that decode and make no sense, frames that do not, and what is no frame at all."""

from __future__ import annotations

import random
import ssl
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.broker.handlers.table import TABLE
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import WireError
from ottla.wire.frames import encode_request
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from ottla.wire.schema import Field, schema
from tests.broker.wire_client import batch

_INTERESTING: dict[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "int8": (-128, -1, 0, 1, 2, 127),
    "int16": (-(2**15), -1, 0, 1, 5, 2**15 - 1),
    "int32": (-(2**31), -1, 0, 1, 5, 100, 2**31 - 1),
    "int64": (-(2**63), -3, -2, -1, 0, 1, 100, 2**63 - 1),
    "uint16": (0, 1, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "float64": (0.0, -1.0),
    "uuid": (bytes(16), b"i" * 16),
    "string": (
        *("", "t", "g", "a.b", "__consumer_offsets", "__transaction_state", "x" * 300, "é"),
        *("(a*)*b", "a" * 2_000),
    ),
    "bytes": (b"", b"x" * 70),
    "records": (
        b"",
        b"x" * 70,
        batch(b"v"),
        *(
            batch(b"v", producer_id=pid, producer_epoch=epoch, base_sequence=at, transactional=open_)
            for pid in (0, 1)
            for epoch, at in ((0, 0), (0, 1), (1, 0))
            for open_ in (False, True)
        ),
    ),
}
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "")


#: How many elements an array has, and one of a wide request.
_FEW: Final = (0, 1, 1, 2)
_MANY: Final = (100, 1_000, 3_000)


def _message(cls: type[Any], version: int, rng: random.Random, counts: Sequence[int] = _FEW) -> Any:
    values = []
    for field in schema(cls).fields:
        if not field.first <= version <= field.last:
            values.append(cls._field_defaults[field.name])
        elif field.null_first <= version <= field.null_last and rng.random() < 0.2:
            values.append(None)
        else:
            values.append(_value(field, field.type, version, rng, counts))
    return cls(*values)


def _value(field: Field, kind: Any, version: int, rng: random.Random, counts: Sequence[int] = _FEW) -> Any:
    """What the field may have. The elements of an array have few elements themselves."""
    if isinstance(kind, list):
        is_wide = counts is not _FEW
        return tuple(
            _name(rng) if is_wide and kind[0] == "string" else _value(field, kind[0], version, rng)
            for _ in range(rng.choice(counts))
        )
    if isinstance(kind, str):
        return rng.choice(_INTERESTING[kind])
    return _message(kind, version, rng, counts)


def _name(rng: random.Random) -> str:
    return f"{rng.choice('tgx')}{rng.randrange(10_000)}"


def request(rng: random.Random) -> bytes:
    """A request that decodes, or, now and then, one with a few bytes changed behind its header."""
    entry = TABLE[rng.choice(sorted(TABLE))]
    version = rng.randint(entry.min_version, entry.max_version)
    try:
        frame = bytearray(encode_request(entry.key, version, 1, "c", _message(API[entry.key].request, version, rng)))
    except WireError:
        return b""
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(12, len(frame))] = rng.choice((0, 1, 2, 127, 128, 255, rng.randrange(256)))
    return bytes(frame)


def _wide(rng: random.Random) -> bytes:
    """A request that decodes, with as many elements in its arrays as a client of a large cluster has."""
    entry = TABLE[rng.choice(sorted(TABLE))]
    version = rng.randint(entry.min_version, entry.max_version)
    message = _message(API[entry.key].request, version, rng, _MANY)
    try:
        return encode_request(entry.key, version, 1, "c", message)
    except WireError:
        return b""


def _noise(rng: random.Random) -> bytes:
    """Any bytes: their first four are most often a length that is negative or far too large."""
    return rng.randbytes(rng.choice((1, 3, 4, 5, 64, 1_000, 20_000)))


def _framed_noise(rng: random.Random) -> bytes:
    content = rng.randbytes(rng.choice((0, 1, 7, 8, 12, 64, 1_000)))
    return struct.pack(">i", len(content)) + content


def _a_header_and_noise(rng: random.Random) -> bytes:
    """The header of a request that there is, and then noise where its body should be."""
    key = rng.choice(sorted(TABLE))
    head = struct.pack(">hhih", key, rng.choice((-1, 0, 1, 3, 12, 99)), rng.getrandbits(31), rng.choice((-1, 0)))
    content = head + rng.randbytes(rng.choice((0, 1, 16, 300)))
    return struct.pack(">i", len(content)) + content


def _half(rng: random.Random) -> bytes:
    """A length, and less than that."""
    size = rng.choice((5, 1_000, 524_288, 104_857_600, 2**31 - 1))
    return struct.pack(">i", size) + rng.randbytes(min(size, rng.choice((0, 1, 4, 900))))


def _foreign(rng: random.Random) -> bytes:
    """What speaks another protocol: HTTP, TLS inside of TLS, the beginning of SSH."""
    hello = b"\x16\x03\x01" + struct.pack(">H", rng.choice((0, 5, 512, 2**16 - 1)))
    return rng.choice((b"GET / HTTP/1.1\r\n\r\n", hello + rng.randbytes(40), b"SSH-2.0-x\r\n", b"\0" * 40))


def _sasl(rng: random.Random) -> bytes:
    """A handshake, and an answer of a mechanism that is noise, or nearly one."""
    version = rng.choice((0, 1))
    shake = encode_request(ApiKey.SASL_HANDSHAKE, version, 1, "c", SaslHandshakeRequest(rng.choice(_MECHANISMS)))
    words = (b"\0alice\0wrong", b"n,,n=alice,r=x", b"n,,n=a", b"c=biws,r=x,p=", b"n,,\1auth=Bearer x.y.z\1\1", b"")
    said = rng.choice((*words, rng.randbytes(50), b"x" * 20_000))
    if version == 0:  # the mechanism's own frames, without Kafka's header
        return shake + struct.pack(">i", len(said)) + said
    authenticate = encode_request(ApiKey.SASL_AUTHENTICATE, rng.choice((0, 2)), 2, "c", SaslAuthenticateRequest(said))
    return shake + authenticate * rng.choice((1, 2))


#: What a message of SASL is made of. Any of them may be said many times.
_SASL_WORDS: Final = (
    *(b"n,,", b"y,,", b"p=tls-unique,,", b"a=alice,", b"n=alice,", b"n=a=2C=3D,", b"r=x,", b"c=biws,", b"p=eA==,"),
    *(b"m=,", b"e=1,", b"tokenauth=true,", b"a=b=c,", b"=,", b",", b"=", b".", b"A", b"eyJh", b"\0", b"\1", b"\xff"),
    b"auth=Bearer x.y.z\1",
)


def _grown(rng: random.Random) -> bytes:
    """A message of SASL in which something is said thousands of times: what a bad pattern stumbles over."""
    words = [rng.choice(_SASL_WORDS) for _ in range(rng.randint(2, 6))]
    words[rng.randrange(len(words))] *= rng.choice((20, 40, 1_000, 20_000))
    said = rng.choice((b"", b"n,,n=alice,r=x,")) + b"".join(words)
    mechanism = rng.choice(_MECHANISMS)
    shake = encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, "c", SaslHandshakeRequest(mechanism))
    return shake + encode_request(ApiKey.SASL_AUTHENTICATE, 2, 2, "c", SaslAuthenticateRequest(said))


_KINDS: Final[tuple[Callable[[random.Random], bytes], ...]] = (
    request,
    request,
    request,
    _noise,
    _framed_noise,
    _a_header_and_noise,
    _half,
    _foreign,
    _sasl,
    _grown,
    _wide,
)


def anything(rng: random.Random) -> bytes:
    """What one connection sends: one of all kinds, and now and then two of them."""
    return b"".join(rng.choice(_KINDS)(rng) for _ in range(rng.choice((1, 1, 1, 2))))


def hello(context: ssl.SSLContext) -> bytes:
    """What a client of TLS says first."""
    outgoing = ssl.MemoryBIO()
    ours = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    try:
        ours.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake cannot be over before the server has said anything")
