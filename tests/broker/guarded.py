"""A broker with an authorizer, in the test's loop, and what its one client may do there."""

from collections.abc import Iterable
from typing import Any

from ottla.broker.access.acls import Acl, AclFilter
from ottla.broker.config_keys import STANDARD_AUTHORIZER
from ottla.broker.session import ANONYMOUS
from ottla.testing import AsyncBroker
from ottla.wire.acls import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.wire_client import WireClient

GUARDED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
UNAUTHORIZED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def allowed(operation: AclOperation, kind: ResourceType, name: str = "*", **other: Any) -> Acl:
    """An ACL that lets everybody who did not say who he is do something; `other` replaces its fields."""
    if kind is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    acl = Acl(kind, name, PatternType.LITERAL, ANONYMOUS, "*", operation, AclPermissionType.ALLOW)
    return acl._replace(**other)


async def allow_only(broker: AsyncBroker, acls: Iterable[Acl]) -> None:
    """From now on these are all the ACLs."""
    await broker.node.acls.delete([AclFilter()])
    await broker.node.acls.create(list(acls))


async def make_topics(broker: AsyncBroker, client: WireClient, *names: str) -> None:
    """Topics with one partition. Afterwards there are no ACLs."""
    await allow_only(broker, [allowed(AclOperation.CREATE, ResourceType.CLUSTER)])
    topics = tuple(CreatableTopic(name, 1, 1) for name in names)
    answer = await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics, 10_000))
    assert [each.error_code for each in answer.topics] == [0] * len(names)
    await allow_only(broker, ())


def errors(message: object) -> set[int]:
    """All error codes in an answer, however deep."""
    found: set[int] = set()
    fields = message._asdict() if isinstance(message, tuple) and hasattr(message, "_asdict") else {}
    for name, value in fields.items():
        if name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, tuple):
            found |= errors(value)
            for each in value:
                found |= errors(each)
    return found
