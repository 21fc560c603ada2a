"""DescribeQuorum, versions 0–2 (KIP-595, KIP-836, KIP-853): who votes on the metadata log, and how far each has it.

This broker is the quorum: its only voter, which leads. It has no listener for controllers, so what version 2 tells of
the voter's addresses is the one that the client has come to.
"""

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.names import METADATA_TOPIC
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.metadata_log import HasMetadataLog
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.settings import HasClock
from ottla.broker.ports.slices import HasSlices
from ottla.wire.acls import AclOperation
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
    TopicData,
)

#: What a client asks for. Anything beside it, and nothing is known of any partition, as in Apache Kafka.
_ASKED: Final = (TopicData(METADATA_TOPIC, (PartitionData(0),)),)
_UNKNOWN: Final = "Only partition 0 of __cluster_metadata has a quorum, and it must be asked for alone."


class _Node(HasAccess, HasClock, HasIdentity, HasMetadataLog, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DescribeQuorumRequest, context: RequestContext
) -> "DescribeQuorumResponse | asyncio.Future[DescribeQuorumResponse]":
    """The quorum of the metadata log. UNKNOWN_TOPIC_OR_PARTITION for each partition when others are asked for."""
    if not node.access.allows_cluster(context, AclOperation.DESCRIBE):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(refused, "Describing the quorum needs DESCRIBE on the cluster.")
    if request.topics != _ASKED:
        return node.slices.start(_unknown(node, request, context), "partitions without a quorum")
    me, log, now_ms = node.identity, node.metadata_log, node.clock.now_ms()
    directory_id = me.directory_id if log.kraft_version else NULL_UUID
    voter = ReplicaState(me.node_id, directory_id, log.end_offset, now_ms, now_ms)
    quorum = QuorumPartition(
        leader_id=me.node_id,
        leader_epoch=log.leader_epoch,
        high_watermark=log.high_watermark,
        current_voters=(voter,),
    )
    listener = Listener(context.session.listener, *me.told[context.session.listener])
    return DescribeQuorumResponse(
        topics=(QuorumTopic(METADATA_TOPIC, (quorum,)),),
        nodes=(Node(me.node_id, (listener,)),),
    )


async def _unknown(node: _Node, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    topics: list[QuorumTopic] = []
    await node.slices.run(counted(context, _steps(request, topics)))
    return DescribeQuorumResponse(topics=tuple(topics))


def _steps(request: DescribeQuorumRequest, topics: list[QuorumTopic]) -> Iterator[None]:
    """A partition in each step; a topic follows when its partitions are done."""
    for topic in request.topics:
        told = []
        for each in topic.partitions:
            told.append(QuorumPartition(each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN))
            yield
        topics.append(QuorumTopic(topic.topic_name, tuple(told)))
        yield
