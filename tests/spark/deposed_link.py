"""A link to a cluster in which the leader of one topic was deposed, and does not know it.

What the real broker has is the log of the successor. The leader that was deposed answers from what it had when it was
deposed. Nobody copies from it, so it acknowledges no write. The client goes to it until it is told of the successor.
"""

import random
from collections.abc import Mapping
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.config.admin import ADMIN_CONFIG, admin_config
from ottla.client.net.cluster import Cluster
from ottla.spark.link import KafkaLink
from ottla.wire.apis import ApiKey
from ottla.wire.batch import iter_headers
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchResponse, PartitionData
from ottla.wire.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse
from ottla.wire.messages.metadata import MetadataResponse
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

READS = frozenset({ApiKey.FETCH, ApiKey.LIST_OFFSETS})
WRITES_AND_READS = READS | {ApiKey.PRODUCE}


class DeposedLeader(Cluster):
    """A leader that was deposed: `ends` is where its logs end. Metadata names it
    `unaware` times more."""

    def __init__(self, config: Mapping[str, object]) -> None:
        of_admin = {name: value for name, value in config.items() if name in ADMIN_CONFIG.keys}
        super().__init__(admin_config(of_admin), random.Random(1))
        self.ends: dict[TopicPartition, int] = {}
        self.unaware = 0
        self.apis = WRITES_AND_READS
        #: How much it was asked since it was deposed.
        self.old_answers = 0

    def depose(
        self, ends: Mapping[TopicPartition, int], unaware: int = 3, apis: frozenset[ApiKey] = WRITES_AND_READS
    ) -> None:
        """From now on it answers requests of `apis` from the state in which its logs ended so."""
        self.ends, self.unaware, self.apis = dict(ends), unaware, apis

    async def request(self, node_id: int, api: ApiKey, message: tuple[Any, ...], **how: Any) -> Any:
        """As the old leader answers, or as its successor does."""
        answer: Any
        if api is ApiKey.METADATA:
            self.unaware -= 1
            return _with_two_replicas(await super().request(node_id, api, message, **how))
        if not self.ends or self.unaware < 0 or api not in self.apis:
            return await super().request(node_id, api, message, **how)
        self.old_answers += 1
        if api is ApiKey.PRODUCE:
            return _not_copied(message)
        answer = await super().request(node_id, api, message, **how)
        return self._fetched(answer, message) if api is ApiKey.FETCH else self._listed(answer)

    def _fetched(self, answer: FetchResponse, request: Any) -> FetchResponse:
        wanted = {(t.topic, p.partition): p.fetch_offset for t in request.topics for p in t.partitions}
        names = {t.topic_id: t.topic for t in request.topics}
        return answer._replace(
            responses=tuple(
                topic._replace(
                    partitions=tuple(
                        self._as_before(TopicPartition(name, p.partition_index), p, wanted[name, p.partition_index])
                        for p in topic.partitions
                    )
                )
                for topic in answer.responses
                for name in [topic.topic or names[topic.topic_id]]
            )
        )

    def _as_before(self, tp: TopicPartition, now: PartitionData, offset: int) -> PartitionData:
        end = self.ends.get(tp)
        if end is None:
            return now
        if offset > end:
            return PartitionData(tp.partition, ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        records = memoryview(now.records or b"")
        size = sum(header.size_bytes for _, header in iter_headers(records) if header.last_offset < end)
        stable = min(now.last_stable_offset, end)
        return now._replace(high_watermark=end, last_stable_offset=stable, records=bytes(records[:size]))

    def _listed(self, answer: ListOffsetsResponse) -> ListOffsetsResponse:
        return answer._replace(
            topics=tuple(
                topic._replace(
                    partitions=tuple(
                        self._offset_before(TopicPartition(topic.name, p.partition_index), p) for p in topic.partitions
                    )
                )
                for topic in answer.topics
            )
        )

    def _offset_before(self, tp: TopicPartition, now: ListOffsetsPartitionResponse) -> ListOffsetsPartitionResponse:
        end = self.ends.get(tp, now.offset)
        if now.timestamp >= 0 and now.offset >= end:  # of a record that it does not have
            return now._replace(offset=-1, timestamp=-1)
        return now._replace(offset=min(now.offset, end))


def _not_copied(request: Any) -> ProduceResponse:
    """The replicas in sync did not have the batch in time: they copy from the successor."""
    return ProduceResponse(
        tuple(
            TopicProduceResponse(
                topic.topic_id,
                topic.name,
                tuple(PartitionProduceResponse(p.index, ErrorCode.REQUEST_TIMED_OUT, -1) for p in topic.partition_data),
            )
            for topic in request.topic_data
        )
    )


def _with_two_replicas(answer: MetadataResponse) -> MetadataResponse:
    return answer._replace(
        topics=tuple(
            topic._replace(partitions=tuple(p._replace(replica_nodes=(1, 2)) for p in topic.partitions))
            for topic in answer.topics
        )
    )


def deposed_link(config: Mapping[str, object]) -> tuple[KafkaLink, DeposedLeader]:
    """A link, and the cluster that it is to."""
    cluster = DeposedLeader(config)
    return KafkaLink(config, cluster=cluster), cluster
