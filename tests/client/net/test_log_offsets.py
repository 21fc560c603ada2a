"""Where a log leaves a leader epoch: what a leader says, and what it leaves out (KIP-320)."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.config.admin import admin_config
from ottla.client.net.cluster import Cluster
from ottla.client.net.log_offsets import epoch_ends
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from tests.client.scripted_broker import ScriptedBroker, Step, changed

_T0, _T1, _GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)
_API = ApiKey.OFFSET_FOR_LEADER_EPOCH


@asynccontextmanager
async def _cluster(broker: ScriptedBroker) -> AsyncIterator[Cluster]:
    cluster = Cluster(admin_config(broker.config({"retry.backoff.ms": 1})), random.Random(0))
    await cluster.start()
    try:
        cluster.track(["t"])
        await cluster.refreshed()
        yield cluster
    finally:
        await cluster.close()


def _each(**change: int) -> Step:
    """An answer with this in each of its partitions."""

    def changes(answer: Any) -> Any:
        topics = (t._replace(partitions=tuple(p._replace(**change) for p in t.partitions)) for t in answer.topics)
        return answer._replace(topics=tuple(topics))

    return changed(changes)


async def test_the_end_of_an_epoch_is_told_by_each_partitions_leader() -> None:
    async with ScriptedBroker({"t": 2}) as broker, _cluster(broker) as cluster:
        broker.kafka.write(_T0, b"1", b"2")
        assert await epoch_ends(cluster, {_T0: 0, _T1: 0}, timeout_ms=5_000) == {_T0: 2, _T1: 0}
        assert len(broker.asked(_API)) == 1


async def test_a_partition_that_nobody_knows_is_left_out() -> None:
    async with ScriptedBroker({"t": 1}) as broker, _cluster(broker) as cluster:
        assert await epoch_ends(cluster, {_T0: 0, _GONE: 0}, timeout_ms=5_000) == {_T0: 0}


async def test_an_epoch_that_a_leader_does_not_know_has_no_end() -> None:
    async with ScriptedBroker({"t": 1}) as broker, _cluster(broker) as cluster:
        broker.script(_API, _each(leader_epoch=-1, end_offset=-1))
        assert await epoch_ends(cluster, {_T0: 0}, timeout_ms=5_000) == {_T0: -1}


@pytest.mark.parametrize(
    "first",
    [
        _each(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        _each(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH),
        changed(lambda answer: answer._replace(topics=())),
    ],
)
async def test_a_leader_that_refuses_or_says_nothing_is_asked_again(first: Step) -> None:
    async with ScriptedBroker({"t": 1}) as broker, _cluster(broker) as cluster:
        broker.kafka.write(_T0, b"1")
        broker.script(_API, first)
        assert await epoch_ends(cluster, {_T0: 0}, timeout_ms=5_000) == {_T0: 1}
        assert len(broker.asked(_API)) == 2
