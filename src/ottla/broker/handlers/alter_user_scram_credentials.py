"""AlterUserScramCredentials, version 0 (KIP-554): set or delete users' credentials, as Kafka's ScramControlManager.

The client sends the salted password, and the broker keeps only the two keys that come from it.
"""

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

from ottla.base.errors import StorageError
from ottla.base.limits import MAX_SALT_BYTES
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.broker.metadata.rules import RefusedError, check_changes
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.topics import HasImage
from ottla.broker.ports.users import HasUsers
from ottla.broker.runtime.answers import then
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.sasl.scram import HASHES, MECHANISM_NUMBERS, MOST_STORED_ITERATIONS, credential_of

_HASHES: Final = {number: HASHES[name] for name, number in MECHANISM_NUMBERS.items()}
_Problem = tuple[ErrorCode, str]
_TWICE: Final[_Problem] = (
    ErrorCode.DUPLICATE_RESOURCE,
    "A user credential cannot be altered twice in the same request",
)


class _Node(HasAccess, HasImage, HasUsers, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> "AlterUserScramCredentialsResponse | asyncio.Future[AlterUserScramCredentialsResponse]":
    """Each user's change, or an error for the user. A user who is named twice is not changed."""
    names = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    if not node.access.allows_cluster(context, AclOperation.ALTER):
        refused = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Changing users needs ALTER on the cluster.")
        return _answer(dict.fromkeys(names, refused))
    try:
        check_changes(len(names), "users")
    except RefusedError as too_many:
        return _answer(dict.fromkeys(names, (too_many.error, str(too_many))))
    problems: dict[str, _Problem | None] = {}

    def decide() -> Iterator[MetadataRecord]:
        return decided(node.image, request, problems)

    def told(fault: StorageError | None) -> AlterUserScramCredentialsResponse:
        if fault is None:
            return _answer(problems)
        storage = (ErrorCode.KAFKA_STORAGE_ERROR, str(fault))
        return _answer({name: problem or storage for name, problem in problems.items()})

    answer: AlterUserScramCredentialsResponse | asyncio.Future[AlterUserScramCredentialsResponse]
    answer = then(node.users.change(decide), told)
    return answer


def decided(
    image: MetadataImage, request: AlterUserScramCredentialsRequest, problems: dict[str, _Problem | None]
) -> Iterator[MetadataRecord]:
    """The records to write, one after the other: their keys take time. `problems` gets what is wrong with each user's
    change, None if nothing is, before the first of them."""
    for deletion in request.deletions:
        twice = _TWICE if deletion.name in problems else None
        problems[deletion.name] = problems.get(deletion.name) or twice or _deletion_problem(image, deletion)
    for upsertion in request.upsertions:
        twice = _TWICE if upsertion.name in problems else None
        problems[upsertion.name] = problems.get(upsertion.name) or twice or _upsertion_problem(upsertion)
    for deleted in request.deletions:
        if problems[deleted.name] is None:
            yield RemoveUserScramCredentialRecord(deleted.name, deleted.mechanism)
    yield from (_record(each) for each in request.upsertions if problems[each.name] is None)


def _record(asked: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    credential = credential_of(_HASHES[asked.mechanism], asked.salted_password, asked.salt, asked.iterations)
    return UserScramCredentialRecord(asked.name, asked.mechanism, *credential)


def _deletion_problem(image: MetadataImage, asked: ScramCredentialDeletion) -> _Problem | None:
    problem = _user_problem(asked.name, asked.mechanism)
    if problem is None and asked.name not in image.scram.get(asked.mechanism, {}):
        return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    return problem


def _upsertion_problem(asked: ScramCredentialUpsertion) -> _Problem | None:
    problem = _user_problem(asked.name, asked.mechanism)
    if problem is not None:
        return problem
    if asked.iterations < _HASHES[asked.mechanism].least_iterations:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if asked.iterations > MOST_STORED_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    if not asked.salt:
        # Apache Kafka takes it, and the user can never log in: our client, among others, refuses to use no salt.
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt is empty"
    if len(asked.salt) > MAX_SALT_BYTES:
        # Each login sends it, and a stand-in as long as it to who asks for a user that is not there.
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The salt has {len(asked.salt)} bytes, at most {MAX_SALT_BYTES}"
    return None


def _user_problem(name: str, mechanism: int) -> _Problem | None:
    if not name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if mechanism not in _HASHES:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    return None


def _answer(problems: dict[str, _Problem | None]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(name, *(problem or (ErrorCode.NONE, None)))
            for name, problem in problems.items()
        )
    )
