"""T10: over a day of commits and transactions, the coordinators' topics stay small on a broker that runs.

The broker is a process of its own, and its cleaner works by itself; the test moves the broker's clock, which goes on
meanwhile. What the broker has on the disk is looked at from outside, after each step. A step of the clock takes no
time, so the cleaner gets the time that it would have had: until the files are as small as they must be, and the step
fails if they never are.
"""

import time
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from ottla import Admin, AlterConfig, ConfigResource, ResourceType
from ottla.base.types import TopicPartition
from ottla.log.checkpoint import RECOVERY_POINT_CHECKPOINT, decode_offsets
from ottla.log.names import LOG
from ottla.testing import Broker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.wire_client import WireClient

_DAY_MS: Final = 86_400_000
_NAMES: Final = ("__consumer_offsets", "__transaction_state")
_PARTITIONS: Final = 2
_T0: Final = TopicPartition("t", 0)
#: Less, and more, than the record of a commit, or of a transaction's state, takes with its batch.
_LEAST_RECORD_BYTES, _RECORD_BYTES = 100, 260
_WAIT_S: Final = 60
_BROKER: Final = {
    "offsets.topic.num.partitions": _PARTITIONS,
    "transaction.state.log.num.partitions": _PARTITIONS,
    "log.cleaner.backoff.ms": 100,
    "connections.max.idle.ms": -1,  # the clock takes long steps
}


class _Day(NamedTuple):
    """What is written in a day: each group commits, and each transactional id has a transaction, once a step."""

    groups: int
    transactional_ids: int
    step_ms: int
    segment_bytes: int

    def most_bytes(self, segments: int) -> int:
        """What both topics may take: in each partition so many segments that are not cleaned yet, one of them active;
        the rest at most as dirty as it is clean (`min.cleanable.dirty.ratio` is a half), and once more as `.cleaned`.
        """
        live_bytes = (self.groups + self.transactional_ids) * _RECORD_BYTES
        return len(_NAMES) * _PARTITIONS * segments * self.segment_bytes + 3 * live_bytes


def _size(data_dir: Path) -> int:
    """Of the coordinators' records. Files come and go meanwhile."""
    total = 0
    for name in _NAMES:
        for number in range(_PARTITIONS):
            for path in (data_dir / f"{name}-{number}").glob(f"*{LOG}*"):
                try:
                    total += path.stat().st_size
                except FileNotFoundError:
                    continue
    return total


def _end_offsets(data_dir: Path) -> int:
    """How many records the coordinators have written, of a broker that has stopped in order."""
    ends = decode_offsets((data_dir / RECOVERY_POINT_CHECKPOINT).read_bytes())
    return sum(end for tp, end in ends.items() if tp.topic in _NAMES)


async def _small_again(client: WireClient, data_dir: Path, most_bytes: int) -> int:
    """The size, when it is small enough; AssertionError when it never is. Between two looks the broker has its turn."""
    deadline = time.monotonic() + _WAIT_S
    while (size := _size(data_dir)) > most_bytes:
        assert time.monotonic() < deadline, f"{size} bytes, of which {most_bytes} may be"
        await client.ask_api_versions()
    return size


async def _commit_all(client: WireClient, topic_id: bytes, groups: int, offset: int) -> None:
    """One commit of each group, all sent at once."""
    topics = (oc.OffsetCommitRequestTopic(topic_id, "t", (oc.OffsetCommitRequestPartition(0, offset),)),)
    for number in range(groups):
        request = oc.OffsetCommitRequest(f"group {number}", topics=topics)
        version = await client.send(ApiKey.OFFSET_COMMIT, request)
    for _ in range(groups):
        _, answer = decode_response(ApiKey.OFFSET_COMMIT, version, await client.frame())
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def _transact(client: WireClient, name: str) -> None:
    init = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(name, 60_000))
    producer = init.producer_id, init.producer_epoch
    added = AddPartitionsToTxnTransaction(name, *producer, False, (AddPartitionsToTxnTopic("t", (0,)),))
    answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest(transactions=(added,)))
    assert (init.error_code, answer.error_code) == (0, 0)
    ended = await client.ask(ApiKey.END_TXN, EndTxnRequest(name, *producer, committed=True))
    assert ended.error_code == ErrorCode.NONE


async def _prepare(broker: Broker, segment_bytes: int) -> bytes:
    """A topic, whose id is returned, and both of the coordinators' with small segments."""
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        broker.create_topics("t")
        async with WireClient(broker) as client:
            for kind, key in enumerate(("group 0", "tx 0")):
                await client.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("", kind, (key,)))
        small = [AlterConfig("internal.segment.bytes", str(segment_bytes)), AlterConfig("segment.ms", "3600000")]
        admin.incremental_alter_configs({ConfigResource(ResourceType.TOPIC, name): small for name in _NAMES})
        return admin.describe_topics(["t"])["t"].topic_id


def _committed(broker: Broker, groups: int) -> set[int]:
    """What the groups have committed."""
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        found = (admin.list_group_offsets(f"group {number}")[_T0] for number in range(groups))
        return {each.offset for each in found}


@pytest.mark.parametrize(
    "day",
    [
        _Day(groups=20, transactional_ids=4, step_ms=600_000, segment_bytes=4_096),
        pytest.param(
            _Day(groups=100, transactional_ids=10, step_ms=240_000, segment_bytes=32_768), marks=pytest.mark.slow
        ),
    ],
    ids=["small", "large"],
)
async def test_a_days_commits_leave_what_is_committed(day: _Day, directory: Path) -> None:
    steps, most_bytes = _DAY_MS // day.step_ms, day.most_bytes(3)
    with Broker(_BROKER, data_dir=directory) as broker:
        topic_id = await _prepare(broker, day.segment_bytes)
        async with WireClient(broker) as client:
            for step in range(steps):
                await _commit_all(client, topic_id, day.groups, step)
                for number in range(day.transactional_ids):
                    await _transact(client, f"tx {number}")
                broker.clock.advance(day.step_ms)
                await _small_again(client, directory, most_bytes)
            at_last = await _small_again(client, directory, day.most_bytes(2))
        broker.stop()
        written = _end_offsets(directory)
        broker.start()
        assert _committed(broker, day.groups) == {steps - 1}
    print(
        f"{steps * day.groups} commits and {steps * day.transactional_ids} transactions, {written} records: "
        f"after each step at most {most_bytes} bytes, at last {at_last}"
    )
    assert written * _LEAST_RECORD_BYTES > 5 * most_bytes, "so few that nothing had to be cleaned"
