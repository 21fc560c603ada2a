"""Authorized operations, as bits (KIP-430): without an authorizer all that there are, as in Kafka."""

from typing import Final

from ottla.broker.ports.access import Access, Asking
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode

#: The error for who may not do what he asks for, and Kafka's text.
UNAUTHORIZED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
UNAUTHORIZED_TEXT: Final = {
    ResourceType.TOPIC: "Topic authorization failed.",
    ResourceType.GROUP: "Group authorization failed.",
    ResourceType.CLUSTER: "Cluster authorization failed.",
    ResourceType.TRANSACTIONAL_ID: "Transactional Id authorization failed.",
}
#: The value in an answer when the client did not ask for authorized operations.
NOT_ASKED: Final = -(2**31)


def on_cluster(access: Access, asking: Asking, *, asked: bool) -> int:
    """The bits of the cluster, for answers that have them; none for who may not describe it."""
    if not asked:
        return NOT_ASKED
    if not access.allows_cluster(asking, AclOperation.DESCRIBE):
        return 0
    return access.operations(asking, ResourceType.CLUSTER)
