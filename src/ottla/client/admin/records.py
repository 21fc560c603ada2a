"""Admin calls about logs: find offsets by time, and delete records."""

from collections.abc import Mapping
from functools import partial

from ottla.base.types import TopicPartition
from ottla.client.admin.base import AdminBase
from ottla.client.core.offsets import OffsetAndTimestamp
from ottla.client.errors import raise_for
from ottla.client.net.log_offsets import list_offsets
from ottla.client.net.requests import only, together
from ottla.wire.apis import ApiKey
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


class RecordCalls(AdminBase):
    """Offsets in logs."""

    async def list_offsets(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The offset of each partition at its time (ms since the epoch, or an `OffsetSpec`); -1 where there is none.

        Raises RequestTimeoutError, KafkaError.
        """
        async with self._requests.ready() as deadline:
            return await list_offsets(self._cluster, times, read_committed=read_committed, timeout_ms=deadline.left_ms)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records of each partition before its offset; -1 deletes all records (KIP-107).

        Returns the new log start offsets. Raises OffsetOutOfRangeError for an offset beyond the end, KafkaError with
        POLICY_VIOLATION for a topic that is only compacted, RequestTimeoutError.
        """

        async def delete(tp: TopicPartition, offset: int) -> int:
            leader = await self._requests.leader(tp)
            topic = DeleteRecordsTopic(tp.topic, (DeleteRecordsPartition(tp.partition, offset),))
            request = DeleteRecordsRequest((topic,), self.config.request_timeout_ms)
            answer: DeleteRecordsResponse = await self._cluster.request(leader, ApiKey.DELETE_RECORDS, request)
            partition = only(only(answer.topics, str(tp)).partitions, str(tp))
            raise_for(partition.error_code, f"{tp} at {offset}")
            return partition.low_watermark

        calls = (
            self._requests.repeat(partial(delete, tp, offset), f"delete_records({tp})") for tp, offset in before.items()
        )
        return dict(zip(before, await together(calls), strict=True))
