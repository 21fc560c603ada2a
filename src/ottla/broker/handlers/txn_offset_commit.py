"""TxnOffsetCommit, versions 0–5 (KIP-98, KIP-447): offsets that become visible with their transaction.

From version 5 on this adds the partition of `__consumer_offsets` to the transaction (KIP-890). For older clients it
verifies that the partition is in the transaction.
"""

import asyncio
from typing import Any, Protocol

from ottla.base.types import TopicPartition
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.settings import HasClock, HasConfig
from ottla.broker.ports.topics import HasImage
from ottla.broker.ports.transactions import HasVerification
from ottla.broker.runtime.answers import ready, then
from ottla.coordinator.offsets.commit import refuse_transactional_commit
from ottla.coordinator.txn.add_partitions_to_txn import offset_commit_error
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.batch import NO_SEQUENCE
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_ADDS_PARTITIONS_FROM = 5
_KNOWS_ABORTABLE_FROM = 4


class _Node(HasAccess, HasClock, HasConfig, HasGroups, HasImage, HasPartitions, HasVerification, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: TxnOffsetCommitRequest, context: RequestContext) -> Any:
    """Write the offsets once the transaction coordinator has agreed."""
    if not node.access.allows(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refuse_transactional_commit(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not node.access.allows(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return refuse_transactional_commit(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = (topic.name for topic in request.topics)
    refused = node.access.refused(context, AclOperation.READ, ResourceType.TOPIC, names)
    if not refused:
        return _verify_and_commit(node, request, context)
    kept = request._replace(topics=tuple(topic for topic in request.topics if topic.name not in refused))
    left = request._replace(topics=tuple(topic for topic in request.topics if topic.name in refused))
    told = refuse_transactional_commit(left, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not kept.topics:
        return told
    answer = _verify_and_commit(node, kept, context)
    return then(
        answer if isinstance(answer, asyncio.Future) else ready(answer),
        lambda response: response._replace(topics=(*response.topics, *told.topics)),
    )


def _verify_and_commit(node: _Node, request: TxnOffsetCommitRequest, context: RequestContext) -> Any:
    if not request.group_id:
        return refuse_transactional_commit(request, ErrorCode.INVALID_GROUP_ID)
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        return refuse_transactional_commit(request, runner)
    tp = runner.tp
    adds = context.api_version >= _ADDS_PARTITIONS_FROM
    verify = node.config.flag("transaction.partition.verification.enable")
    partition = node.partitions.find(*tp)
    if partition is None or not (adds or verify):
        return _commit(node, request)
    log, producer_id = partition.log, request.producer_id
    begun = log.producers.begin_verification(
        producer_id, NO_SEQUENCE, request.producer_epoch, supports_epoch_bump=adds, now_ms=node.clock.now_ms()
    )
    if begun.error is not ErrorCode.NONE:
        return refuse_transactional_commit(request, begun.error)
    if not begun.needed:
        return _commit(node, request)
    asked = node.verification.ask(
        request.transactional_id, request.producer_id, request.producer_epoch, [tp], verify_only=not adds
    )

    def verified(errors: dict[TopicPartition, ErrorCode]) -> Any:
        error = errors[tp]
        if error is ErrorCode.NONE:
            log.producers.confirm_verification(producer_id, begun.guard)
            return _commit(node, request)
        knows = context.api_version >= _KNOWS_ABORTABLE_FROM
        return refuse_transactional_commit(
            request, offset_commit_error(error, adds_partitions=adds, knows_abortable=knows)
        )

    return then(asked, verified)


def _commit(node: _Node, request: TxnOffsetCommitRequest) -> Any:
    """Commit what belongs to topics that exist."""
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        return refuse_transactional_commit(request, runner)
    image = node.image
    known = []
    for topic in request.topics:
        there = image.topics.get(topic.name)
        count = 0 if there is None else len(there.partitions)
        partitions = tuple(each for each in topic.partitions if 0 <= each.partition_index < count)
        if partitions:
            known.append(topic._replace(partitions=partitions))
    shard = runner.shard
    commit = request._replace(topics=tuple(known))
    answered = runner.submit(lambda token, now_ms: shard.commit_transactional_offsets(token, commit, now_ms))
    return then(answered, lambda response: _merge(request, response))


def _merge(request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
    errors = {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                topic.name,
                tuple(
                    TxnOffsetCommitResponsePartition(
                        each.partition_index,
                        errors.get((topic.name, each.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
