"""A link to a cluster in which another leader was elected for a partition, with fewer records than the one before.

The real broker has the log of the new leader. It alone leads its partitions, and its leader epochs stay. So what a
broker says of epochs is said here: each election begins one.
"""

import random
from collections.abc import Mapping
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.config.admin import ADMIN_CONFIG, admin_config
from ottla.client.net.cluster import Cluster
from ottla.spark.link import KafkaLink
from ottla.wire.apis import ApiKey
from ottla.wire.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


class Elections(Cluster):
    """`starts` is where the epochs 1, 2, … of a partition begin; epoch 0 begins with the log."""

    def __init__(self, config: Mapping[str, object], starts: Mapping[TopicPartition, list[int]]) -> None:
        super().__init__(
            admin_config({name: value for name, value in config.items() if name in ADMIN_CONFIG.keys}), random.Random(1)
        )
        self.starts = starts
        #: How much was asked of each API.
        self.asked: dict[ApiKey, int] = {}

    async def request(self, node_id: int, api: ApiKey, message: tuple[Any, ...], **how: Any) -> Any:
        """As the real broker answers, in the newest epoch."""
        self.asked[api] = self.asked.get(api, 0) + 1
        if api is ApiKey.OFFSET_FOR_LEADER_EPOCH:
            assert isinstance(message, OffsetForLeaderEpochRequest)
            return self._ended(message)
        answer: Any = await super().request(node_id, api, message, **how)
        return self._listed(answer) if api is ApiKey.LIST_OFFSETS else answer

    def _listed(self, answer: ListOffsetsResponse) -> ListOffsetsResponse:
        def now(topic: str, p: ListOffsetsPartitionResponse) -> ListOffsetsPartitionResponse:
            return p._replace(leader_epoch=len(self.starts.get(TopicPartition(topic, p.partition_index), [])))

        topics = (t._replace(partitions=tuple(now(t.name, p) for p in t.partitions)) for t in answer.topics)
        return answer._replace(topics=tuple(topics))

    def _ended(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        def end(topic: str, partition: int, epoch: int) -> EpochEndOffset:
            return EpochEndOffset(0, partition, epoch, self.starts[TopicPartition(topic, partition)][epoch])

        return OffsetForLeaderEpochResponse(
            0,
            tuple(
                OffsetForLeaderTopicResult(
                    t.topic, tuple(end(t.topic, p.partition, p.leader_epoch) for p in t.partitions)
                )
                for t in request.topics
            ),
        )


def elected_link(
    config: Mapping[str, object], starts: Mapping[TopicPartition, list[int]]
) -> tuple[KafkaLink, Elections]:
    """A link, and the cluster that it is to."""
    cluster = Elections(config, starts)
    return KafkaLink(config, cluster=cluster), cluster
