"""DeleteTopics, versions 1–6: by name, or by id from version 6 on (KIP-516)."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.handlers.mutations import count_change
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import TopicImage
from ottla.broker.metadata.rules import RefusedError
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage, HasTopics
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

#: From here on a client knows THROTTLING_QUOTA_EXCEEDED.
_KNOWS_QUOTAS_FROM = 5


class _Node(HasAccess, HasConfig, HasImage, HasSlices, HasTopics, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DeleteTopicsRequest, context: RequestContext
) -> "asyncio.Future[DeleteTopicsResponse]":
    """Delete each topic; its name is free then. A topic that is named twice, by name or id, is not deleted."""
    return node.slices.start(_delete(node, request, context), "deleting topics")


async def _delete(node: _Node, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Rights are asked for before it is this change's turn: they are given up with the connection."""
    wanted = request.topics or tuple(DeleteTopicState(name) for name in request.topic_names)
    decided = _names(node, wanted)
    refused, hidden = await _refused(node, decided, context)
    change = partial(_delete_all, node, wanted, refused, hidden, frozenset(decided), context)
    response: DeleteTopicsResponse = await node.topics.change(change)
    return response


async def _delete_all(
    node: _Node,
    wanted: Sequence[DeleteTopicState],
    refused: frozenset[str],
    hidden: frozenset[str],
    decided: frozenset[str],
    context: RequestContext,
) -> DeleteTopicsResponse:
    late = [name for name in _names(node, wanted) if name not in decided]  # an id that had no topic, and has one now
    if late:
        more_refused, more_hidden = await _refused(node, late, context)
        refused, hidden = refused | more_refused, hidden | more_hidden
    responses: list[DeletableTopicResult] = []
    doomed: list[TopicImage] = []
    await node.slices.run(_sort(node, wanted, refused, hidden, context, responses, doomed))
    try:
        await node.topics.delete_all(doomed)
    except StorageError as fault:
        failed = {topic.topic_id for topic in doomed}
        responses = [
            DeletableTopicResult(each.name, each.topic_id, ErrorCode.KAFKA_STORAGE_ERROR, str(fault))
            if each.topic_id in failed and each.error_code == ErrorCode.NONE
            else each
            for each in responses
        ]
    return DeleteTopicsResponse(responses=tuple(responses))


def _sort(
    node: _Node,
    wanted: Sequence[DeleteTopicState],
    refused: frozenset[str],
    hidden: frozenset[str],
    context: RequestContext,
    responses: list[DeletableTopicResult],
    doomed: list[TopicImage],
) -> Iterator[None]:
    """Look at a topic in each step: what is to be said of it, and which can be deleted."""
    topics, kept_from = node.image.topics, refused | hidden
    named = {topics[each.name].topic_id for each in wanted if each.name in topics and each.name not in kept_from}
    both_ways = named & {each.topic_id for each in wanted if each.name is None}
    for each, count in Counter(wanted).items():
        yield
        if each.name is None and each.topic_id in both_ways:
            continue  # answered with the name
        problem = _problem(each, count)
        topic = topics.get(each.name or "")
        if problem is not None:
            responses.append(_refuse(each, problem))
        elif (unauthorized := _unauthorized(node, each, refused, hidden)) is not None:
            responses.append(unauthorized)
        elif topic is not None and topic.topic_id in both_ways:
            asked = DeleteTopicState(topic.name, topic.topic_id)
            responses.append(_refuse(asked, "The provided topic name maps to an ID that was already supplied."))
        else:
            found = _find(node, each)
            answer = found if isinstance(found, DeletableTopicResult) else _counted(context, found)
            responses.append(answer)
            if isinstance(found, TopicImage) and answer.error_code == ErrorCode.NONE:
                doomed.append(found)


def _names(node: _Node, wanted: Sequence[DeleteTopicState]) -> list[str]:
    return [name for name in (_name(node, each) for each in wanted) if name is not None]


async def _refused(node: _Node, names: Sequence[str], context: RequestContext) -> tuple[frozenset[str], frozenset[str]]:
    """Those of the names whose topics may not be deleted, and those whose topics may not be described."""
    of_many, slices = node.access.refused_of_many, node.slices
    if await node.access.covers_many(slices, context, AclOperation.DELETE, ResourceType.TOPIC, names):
        return frozenset(), frozenset()
    refused = await of_many(slices, context, AclOperation.DELETE, ResourceType.TOPIC, names)
    return refused, await of_many(slices, context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, told=False)


def _counted(context: RequestContext, topic: TopicImage) -> DeletableTopicResult:
    """The answer for a topic that can be deleted, if the client's quota has room for it."""
    try:
        count_change(context, len(topic.partitions), strict_from=_KNOWS_QUOTAS_FROM)
    except RefusedError as refused:
        return DeletableTopicResult(topic.name, topic.topic_id, refused.error, str(refused))
    return DeletableTopicResult(topic.name, topic.topic_id)


def _name(node: _Node, wanted: DeleteTopicState) -> str | None:
    if wanted.name is not None:
        return wanted.name
    topic = node.image.topics_by_id.get(wanted.topic_id)
    return None if topic is None else topic.name


def _unauthorized(
    node: _Node, wanted: DeleteTopicState, refused: Collection[str], hidden: Collection[str]
) -> DeletableTopicResult | None:
    """The answer for a topic that may not be deleted. As in Kafka, ids are no secret, and names are.

    Nor is it told whether there is a topic of a name that may not be described.
    """
    name = _name(node, wanted)
    is_hidden = name in hidden
    if wanted.name is not None and not is_hidden and name not in node.image.topics:
        return None  # told that it does not exist
    if name not in refused and not (is_hidden and wanted.name is not None):
        return None
    shown = None if wanted.name is None and is_hidden else name
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DeletableTopicResult(shown, wanted.topic_id, error, "Topic authorization failed.")


def _problem(wanted: DeleteTopicState, count: int) -> str | None:
    if wanted.name is None and wanted.topic_id == NULL_UUID:
        return "Neither topic name nor id were specified."
    if wanted.name is not None and wanted.topic_id != NULL_UUID:
        return "You may not specify both topic name and topic id."
    if count > 1:
        return "Duplicate topic name." if wanted.name is not None else "Duplicate topic id."
    return None


def _refuse(wanted: DeleteTopicState, problem: str) -> DeletableTopicResult:
    return DeletableTopicResult(wanted.name, wanted.topic_id, ErrorCode.INVALID_REQUEST, problem)


def _find(node: _Node, wanted: DeleteTopicState) -> TopicImage | DeletableTopicResult:
    name, topic_id = wanted.name, wanted.topic_id
    if not node.config.flag("delete.topic.enable"):
        return DeletableTopicResult(name, topic_id, ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    image = node.image
    topic = image.topics_by_id.get(topic_id) if name is None else image.topics.get(name)
    if topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        what = "topic ID" if name is None else "topic-partition"
        return DeletableTopicResult(name, topic_id, error, f"This server does not host this {what}.")
    return topic
