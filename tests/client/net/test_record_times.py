"""When a record was written: in a batch that began before it, behind control batches, and where there is none."""

import random

import pytest

from ottla import KafkaError, TopicPartition
from ottla.client.config.admin import admin_config
from ottla.client.net.cluster import Cluster
from ottla.client.net.record_times import first_timestamps
from ottla.wire.apis import ApiKey
from ottla.wire.batch import at_offset, parse_header
from ottla.wire.errors import ErrorCode
from ottla.wire.markers import control_batch
from ottla.wire.messages.fetch import FetchResponse, PartitionData
from ottla.wire.records import Record, encode_batch
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import ScriptedBroker, Step, changed

_TP = TopicPartition("t", 0)


def _answers(data: bytes = b"", error: ErrorCode = ErrorCode.NONE) -> Step:
    """The fetch brings `data`, or the partition's error."""

    def change(answer: FetchResponse) -> FetchResponse:
        (topic,) = answer.responses
        return answer._replace(responses=(topic._replace(partitions=(PartitionData(0, error, records=data),)),))

    return changed(change)


def _records(*offsets: int) -> bytes:
    """A batch of these offsets; each record was written a thousand times its offset after 1970."""
    return encode_batch([Record(offset, offset * 1_000, None, b"v") for offset in offsets])


def _marker(offset: int) -> bytes:
    batch = control_batch(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=99)
    return b"".join(at_offset(batch, parse_header(batch), offset, 0))


async def _found(broker: ScriptedBroker, wanted: range) -> int | None:
    cluster = Cluster(admin_config(broker.config({"retry.backoff.ms": 1})), random.Random(0))
    await cluster.start()
    try:
        cluster.track(["t"])
        await cluster.refreshed()
        return (await first_timestamps(cluster, {_TP: wanted}, timeout_ms=5_000)).get(_TP)
    finally:
        await cluster.close()


@pytest.mark.parametrize(
    ("wanted", "steps", "timestamp_ms"),
    [
        (range(2, 4), [_answers(_records(0, 1, 2, 3))], 2_000),
        (range(2, 9), [_answers(_records(0, 1, 5))], 5_000),  # the log was compacted
        (range(2, 5), [_answers(_records(0, 1, 5))], None),
        (range(2, 9), [_answers(_marker(2) + _records(3))], 3_000),
        (range(2, 9), [_answers(_marker(2)), _answers(_records(3))], 3_000),
        (range(2, 3), [_answers(_marker(2))], None),
        (range(2, 9), [_answers(_records(0, 1))], None),
        (range(2, 9), [_answers(b"")], None),
        (range(2, 9), [_answers(error=ErrorCode.OFFSET_OUT_OF_RANGE)], None),
        (range(2, 9), [_answers(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), _answers(_records(2))], 2_000),
        (range(2, 2), [], None),
    ],
)
async def test_the_first_record_of_a_range_is_found(
    watchdog: Watchdog, wanted: range, steps: list[Step], timestamp_ms: int | None
) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker:
        broker.script(ApiKey.FETCH, *steps)
        assert await _found(broker, wanted) == timestamp_ms
        assert len(broker.asked(ApiKey.FETCH)) == len(steps)


async def test_an_error_that_lasts_is_raised(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker:
        broker.script(ApiKey.FETCH, _answers(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(KafkaError, match=r"TOPIC_AUTHORIZATION_FAILED: t-0"):
            await _found(broker, range(3))
