"""DeleteTopics, versions 1–6: by name, or by id from version 6 on (KIP-516)."""

from typing import TYPE_CHECKING

from ottla.base.errors import StorageError
from ottla.broker.handlers.table import RequestContext
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: "Node", request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete each; its name is free at once."""
    wanted = request.topics or tuple(DeleteTopicState(name) for name in request.topic_names)
    return DeleteTopicsResponse(responses=tuple(_delete(node, each) for each in wanted))


def _delete(node: "Node", wanted: DeleteTopicState) -> DeletableTopicResult:
    name, topic_id = wanted.name, wanted.topic_id
    if (name is None) == (topic_id == NULL_UUID):
        return DeletableTopicResult(
            name, topic_id, ErrorCode.INVALID_REQUEST, "You must name a topic by its name or by its id, not both."
        )
    if not node.config.flag("delete.topic.enable"):
        return DeletableTopicResult(name, topic_id, ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    image = node.metadata.image
    topic = image.topics_by_id.get(topic_id) if name is None else image.topics.get(name)
    if topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeletableTopicResult(name, topic_id, error, "This server does not host this topic.")
    try:
        node.delete_topic(topic)
    except StorageError as fault:
        return DeletableTopicResult(topic.name, topic.topic_id, ErrorCode.KAFKA_STORAGE_ERROR, str(fault))
    return DeletableTopicResult(topic.name, topic.topic_id)
