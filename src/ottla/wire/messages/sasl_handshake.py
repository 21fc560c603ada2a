"""sasl_handshake messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class SaslHandshakeRequest(NamedTuple):
    mechanism: str = ""


class SaslHandshakeResponse(NamedTuple):
    error_code: int = 0
    mechanisms: tuple[str, ...] = ()


declare(
    SaslHandshakeRequest,
    (Field("mechanism", "string", 0, LATEST),),
    flexible_from=LATEST,
)
declare(
    SaslHandshakeResponse,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("mechanisms", ["string"], 0, LATEST),
    ),
    flexible_from=LATEST,
)
