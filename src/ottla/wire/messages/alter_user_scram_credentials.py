"""alter_user_scram_credentials messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class ScramCredentialDeletion(NamedTuple):
    name: str = ""
    mechanism: int = 0


class ScramCredentialUpsertion(NamedTuple):
    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes = b""

    def __repr__(self) -> str:
        return "ScramCredentialUpsertion([hidden])"


class AlterUserScramCredentialsRequest(NamedTuple):
    deletions: tuple[ScramCredentialDeletion, ...] = ()
    upsertions: tuple[ScramCredentialUpsertion, ...] = ()


class AlterUserScramCredentialsResult(NamedTuple):
    user: str = ""
    error_code: int = 0
    error_message: str | None = ""


class AlterUserScramCredentialsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: tuple[AlterUserScramCredentialsResult, ...] = ()


declare(
    ScramCredentialDeletion,
    (
        Field("name", "string", 0, LATEST),
        Field("mechanism", "int8", 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    ScramCredentialUpsertion,
    (
        Field("name", "string", 0, LATEST),
        Field("mechanism", "int8", 0, LATEST),
        Field("iterations", "int32", 0, LATEST),
        Field("salt", "bytes", 0, LATEST),
        Field("salted_password", "bytes", 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    AlterUserScramCredentialsRequest,
    (
        Field("deletions", [ScramCredentialDeletion], 0, LATEST),
        Field("upsertions", [ScramCredentialUpsertion], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    AlterUserScramCredentialsResult,
    (
        Field("user", "string", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=0,
)
declare(
    AlterUserScramCredentialsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("results", [AlterUserScramCredentialsResult], 0, LATEST),
    ),
    flexible_from=0,
)
