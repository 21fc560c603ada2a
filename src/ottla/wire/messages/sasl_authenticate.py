"""sasl_authenticate messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class SaslAuthenticateRequest(NamedTuple):
    auth_bytes: bytes = b""

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest([hidden])"


class SaslAuthenticateResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0

    def __repr__(self) -> str:
        return "SaslAuthenticateResponse([hidden])"


declare(
    SaslAuthenticateRequest,
    (Field("auth_bytes", "bytes", 0, LATEST),),
    flexible_from=2,
)
declare(
    SaslAuthenticateResponse,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("auth_bytes", "bytes", 0, LATEST),
        Field("session_lifetime_ms", "int64", 1, LATEST),
    ),
    flexible_from=2,
)
