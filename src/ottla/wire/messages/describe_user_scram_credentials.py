"""describe_user_scram_credentials messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class UserName(NamedTuple):
    name: str = ""


class DescribeUserScramCredentialsRequest(NamedTuple):
    users: tuple[UserName, ...] | None = ()


class CredentialInfo(NamedTuple):
    mechanism: int = 0
    iterations: int = 0


class DescribeUserScramCredentialsResult(NamedTuple):
    user: str = ""
    error_code: int = 0
    error_message: str | None = ""
    credential_infos: tuple[CredentialInfo, ...] = ()


class DescribeUserScramCredentialsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: tuple[DescribeUserScramCredentialsResult, ...] = ()


declare(
    UserName,
    (Field("name", "string", 0, LATEST),),
    flexible_from=0,
)
declare(
    DescribeUserScramCredentialsRequest,
    (Field("users", [UserName], 0, LATEST, null_first=0, null_last=LATEST),),
    flexible_from=0,
)
declare(
    CredentialInfo,
    (
        Field("mechanism", "int8", 0, LATEST),
        Field("iterations", "int32", 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeUserScramCredentialsResult,
    (
        Field("user", "string", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("credential_infos", [CredentialInfo], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeUserScramCredentialsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("results", [DescribeUserScramCredentialsResult], 0, LATEST),
    ),
    flexible_from=0,
)
