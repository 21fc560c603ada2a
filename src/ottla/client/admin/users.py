"""Admin calls about users with SCRAM credentials (KIP-554)."""

import asyncio
import secrets
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from ottla.base.errors import ConfigError
from ottla.base.secret import Secret
from ottla.client.admin.base import AdminBase
from ottla.client.core.several import several
from ottla.client.errors import raise_for
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from ottla.wire.sasl.scram import HASHES, MECHANISM_NUMBERS, SALT_BYTES, USUAL_ITERATIONS, salted_password

_NAMES = {number: name for name, number in MECHANISM_NUMBERS.items()}


class ScramMechanism(IntEnum):
    """A mechanism, by Kafka's number."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism(self) -> str:
        """Its name: `SCRAM-SHA-256`."""
        return _NAMES[self.value]


class SetScramCredential(NamedTuple):
    """A user's new password with one mechanism. Others of the user stay."""

    user: str
    mechanism: ScramMechanism
    password: Secret
    iterations: int = USUAL_ITERATIONS


class DeleteScramCredential(NamedTuple):
    """One mechanism of a user, who cannot use it any more. Connections that are open stay."""

    user: str
    mechanism: ScramMechanism


class UserCalls(AdminBase):
    """Users with SCRAM credentials."""

    async def describe_user_scram_credentials(self, users: Iterable[str] = ()) -> dict[str, dict[ScramMechanism, int]]:
        """The iterations of each mechanism, by user; all users if none is named.

        Raises KafkaError: RESOURCE_NOT_FOUND for a user who has no credential.
        """
        request = DescribeUserScramCredentialsRequest(tuple(map(UserName, several(users, "users"))) or None)

        async def attempt() -> dict[str, dict[ScramMechanism, int]]:
            answer: DescribeUserScramCredentialsResponse = await self._requests.ask_controller(
                ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request
            )
            raise_for(answer.error_code, answer.error_message or "users cannot be seen")
            for each in answer.results:
                raise_for(each.error_code, f"user {each.user}: {each.error_message}")
            return {
                each.user: {ScramMechanism(info.mechanism): info.iterations for info in each.credential_infos}
                for each in sorted(answer.results)
            }

        return await self._requests.repeat(attempt, "describe_user_scram_credentials")

    async def alter_user_scram_credentials(self, changes: Iterable[SetScramCredential | DeleteScramCredential]) -> None:
        """Set and delete credentials; one change a user. The password is salted here, in a thread, and never sent.

        Raises KafkaError of the first that is refused; the others are carried out. ConfigError for an empty password.
        """
        wanted = list(changes)
        if any(isinstance(each, SetScramCredential) and not each.password.reveal() for each in wanted):
            raise ConfigError("a password is empty")
        upsertions = await asyncio.to_thread(
            lambda: tuple(_salted(each) for each in wanted if isinstance(each, SetScramCredential))
        )
        deletions = tuple(
            ScramCredentialDeletion(each.user, each.mechanism)
            for each in wanted
            if isinstance(each, DeleteScramCredential)
        )
        request = AlterUserScramCredentialsRequest(deletions, upsertions)

        async def attempt() -> None:
            answer: AlterUserScramCredentialsResponse = await self._requests.ask_controller(
                ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request
            )
            for each in answer.results:
                raise_for(ErrorCode(each.error_code), f"user {each.user}: {each.error_message}")

        await self._requests.repeat(attempt, "alter_user_scram_credentials")


def _salted(wanted: SetScramCredential) -> ScramCredentialUpsertion:
    salt = secrets.token_bytes(SALT_BYTES)
    hash_ = HASHES[wanted.mechanism.mechanism]
    salted = salted_password(hash_, wanted.password, salt, wanted.iterations)
    return ScramCredentialUpsertion(wanted.user, wanted.mechanism, wanted.iterations, salt, salted)
