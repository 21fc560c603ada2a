"""ListOffsets, versions 1–11: an offset by time. Negative timestamps are special questions:

-1 latest, -2 earliest, -3 max timestamp (version 7, KIP-734), -4 earliest local (8), -5 latest tiered (9, KIP-1005),
-6 earliest pending upload (11, KIP-1023). With READ_COMMITTED the end is the last stable offset.
"""

from collections import Counter
from collections.abc import Generator, Iterator
from functools import partial
from typing import Any, Final, Protocol

from ottla.base.errors import CorruptDataError, StorageError
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.searches import HasSearches
from ottla.broker.runtime.answers import then
from ottla.log.results import Isolation, TimestampOffset
from ottla.log.timestamps import BatchSearch
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.wire.special_timestamp import SpecialTimestamp

#: First version that knows a special timestamp.
_SPECIAL_FROM: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}


class _Node(HasAccess, HasPartitions, HasSearches, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: ListOffsetsRequest, context: RequestContext) -> Any:
    """One offset for each partition; -1 where no record is at or after the timestamp. Naming one twice is an error."""
    offsets = _Offsets(node, request, context)
    searching = node.searches.run(offsets.steps(), partial(counted, context))
    return offsets.response() if searching is None else then(searching, lambda _: offsets.response())


class _Offsets:
    """One request."""

    def __init__(self, node: _Node, request: ListOffsetsRequest, context: RequestContext) -> None:
        self._node = node
        self._request = request
        self._context = context
        self._isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
        self._topics: list[ListOffsetsTopicResponse] = []

    def steps(self) -> Iterator[BatchSearch | None]:
        """Look for everything; what may take long is in the steps."""
        request = self._request
        names = (topic.name for topic in request.topics)
        refused = self._node.access.refused(self._context, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
        counts = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
        for topic in request.topics:
            if topic.name in refused:
                self._topics.append(_refuse(topic))
                continue
            answers = []
            for asked in {each.partition_index: each for each in topic.partitions}.values():
                if counts[topic.name, asked.partition_index] > 1:
                    answers.append(ListOffsetsPartitionResponse(asked.partition_index, ErrorCode.INVALID_REQUEST))
                else:
                    answers.append((yield from self._one(topic.name, asked)))
            self._topics.append(ListOffsetsTopicResponse(topic.name, tuple(answers)))

    def response(self) -> ListOffsetsResponse:
        """The answer, after all steps."""
        return ListOffsetsResponse(topics=tuple(self._topics))

    def _one(
        self, topic: str, asked: ListOffsetsPartition
    ) -> Generator[BatchSearch | None, None, ListOffsetsPartitionResponse]:
        index, version = asked.partition_index, self._context.api_version
        if asked.timestamp < 0 and version < _SPECIAL_FROM.get(asked.timestamp, version + 1):
            return ListOffsetsPartitionResponse(index, ErrorCode.UNSUPPORTED_VERSION)
        partitions = self._node.partitions
        partition = partitions.find(topic, index)
        if partition is None:
            return ListOffsetsPartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = partition.check_leader_epoch(asked.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return ListOffsetsPartitionResponse(index, error)
        if asked.timestamp >= 0 or asked.timestamp == SpecialTimestamp.MAX_TIMESTAMP:
            yield None  # its indexes are looked at
        search = partition.log.search_timestamp(asked.timestamp, self._isolation)
        try:
            while True:
                if partitions.find(topic, index) is not partition:
                    return ListOffsetsPartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                yield next(search)
        except StopIteration as done:
            found: TimestampOffset | None = done.value
        except (CorruptDataError, StorageError) as fault:
            return ListOffsetsPartitionResponse(index, partitions.faults.report(partition.tp, fault))
        if found is None:
            return ListOffsetsPartitionResponse(index)
        return ListOffsetsPartitionResponse(index, 0, found.timestamp_ms, found.offset, found.leader_epoch)


def _refuse(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ListOffsetsTopicResponse(
        topic.name, tuple(ListOffsetsPartitionResponse(each.partition_index, error) for each in topic.partitions)
    )
