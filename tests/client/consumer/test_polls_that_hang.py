"""One answer that is wrong, or one fault of the user's code, does not end reading in silence."""

import asyncio
from typing import Any

import pytest

from ottla import AsyncConsumer, TopicPartition
from ottla.base.errors import OttlaError
from ottla.client.errors import InternalError
from ottla.wire.apis import ApiKey
from ottla.wire.messages.find_coordinator import FindCoordinatorResponse
from ottla.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.list_offsets import ListOffsetsResponse
from ottla.wire.messages.metadata import MetadataResponse
from ottla.wire.messages.offset_fetch import OffsetFetchResponse
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.wire.messages.sync_group import SyncGroupResponse
from tests.client.conftest import Watchdog
from tests.client.fake_kafka import Asked
from tests.client.scripted_broker import Answer, ScriptedBroker, Step, Usual, as_usual, changed

_T0, _T1 = TopicPartition("t", 0), TopicPartition("t", 1)
_GROUP: dict[str, object] = {"group.id": "g", "heartbeat.interval.ms": 5}
#: A poll that ends only when something comes.
_POLL_S = 60.0


def nothing_about_partitions(answer: ListOffsetsResponse) -> Answer:
    return answer._replace(topics=())


def another_partition(answer: OffsetForLeaderEpochResponse) -> Answer:
    return answer._replace(topics=(OffsetForLeaderTopicResult("t", (EpochEndOffset(0, 9, 0, 5),)),))


def committed_at_an_epoch(answer: OffsetFetchResponse) -> Answer:
    """Offset 0 of leader epoch 0: then the leader is asked whether the log still holds it."""
    group = answer.groups[0]
    part = group.topics[0].partitions[0]._replace(committed_offset=0, committed_leader_epoch=0)
    topic = group.topics[0]._replace(partitions=(part,))
    return answer._replace(groups=(group._replace(topics=(topic,)),))


def bad_host(answer: MetadataResponse) -> Answer:
    return answer._replace(brokers=tuple(node._replace(host="two..dots") for node in answer.brokers))


@pytest.mark.parametrize(
    ("api", "wrong"),
    [
        pytest.param(
            ApiKey.LIST_OFFSETS,
            nothing_about_partitions,
            id="ListOffsets says nothing",
        ),
        pytest.param(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            another_partition,
            id="OffsetForLeaderEpoch says something else",
        ),
        pytest.param(
            ApiKey.METADATA,
            bad_host,
            id="Metadata has a bad host",
        ),
    ],
)
async def test_an_answer_that_is_wrong_once_does_not_end_a_reader(watchdog: Watchdog, api: ApiKey, wrong: Any) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer({"group.id": "g"}) as consumer:
        broker.kafka.write(_T0, b"v")
        broker.always(ApiKey.OFFSET_FETCH, changed(committed_at_an_epoch if api != ApiKey.LIST_OFFSETS else _as_it_is))
        broker.script(api, changed(wrong))
        consumer.assign([_T0])
        assert [record.value for record in await consumer.poll(_POLL_S)] == [b"v"]
        assert broker.asked(api)


def _as_it_is(answer: OffsetFetchResponse) -> Answer:
    return answer


def unknown_protocol(answer: JoinGroupResponse) -> Answer:
    return answer._replace(protocol_name="of somebody else") if answer.generation_id > 0 else answer


def unreadable_subscription(answer: JoinGroupResponse) -> Answer:
    members = (JoinGroupResponseMember(answer.member_id, None, b"\0"),)
    return answer._replace(members=members) if answer.generation_id > 0 else answer


def unreadable_assignment(answer: SyncGroupResponse) -> Answer:
    return answer._replace(assignment=b"\0\0\xff\xff")


def bad_coordinator(answer: FindCoordinatorResponse) -> Answer:
    return answer._replace(coordinators=tuple(c._replace(host="two..dots", node_id=7) for c in answer.coordinators))


def nobody(answer: FindCoordinatorResponse) -> Answer:
    return answer._replace(coordinators=())


@pytest.mark.parametrize(
    ("api", "wrong"),
    [
        pytest.param(
            ApiKey.JOIN_GROUP,
            unknown_protocol,
            id="JoinGroup names a protocol that nobody offered",
        ),
        pytest.param(ApiKey.JOIN_GROUP, unreadable_subscription, id="JoinGroup has an unreadable subscription"),
        pytest.param(ApiKey.SYNC_GROUP, unreadable_assignment, id="SyncGroup has an unreadable assignment"),
        pytest.param(
            ApiKey.FIND_COORDINATOR,
            bad_coordinator,
            id="FindCoordinator has a bad host",
        ),
        pytest.param(ApiKey.FIND_COORDINATOR, nobody, id="FindCoordinator says nothing"),
    ],
)
async def test_an_answer_that_is_wrong_is_told_or_survived_by_a_member(
    watchdog: Watchdog, api: ApiKey, wrong: Any
) -> None:
    wrong_once = _once(api, changed(wrong))
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_GROUP) as consumer:
        broker.kafka.write(_T0, b"v")
        broker.script(api, *wrong_once)
        consumer.subscribe(["t"])
        values = await _values(consumer, 1)
        assert values == [b"v"]


def _once(api: ApiKey, step: Step) -> tuple[Step, ...]:
    """A member's first JoinGroup only brings its id."""
    return (changed(_as_it_is), step) if api == ApiKey.JOIN_GROUP else (step,)


async def _values(consumer: AsyncConsumer, count: int) -> list[bytes | None]:
    """The next values; errors that are told on the way are heard once, and polled on."""
    found: list[bytes | None] = []
    while len(found) < count:
        try:
            found += [record.value for record in await consumer.poll(_POLL_S)]
        except InternalError:
            raise
        except (OttlaError, ValueError):
            continue
    return found


class UserInterrupt(BaseException):
    """As KeyboardInterrupt, but it does not end the test run."""


class FailsOnce:
    """A deserializer that is interrupted at one value."""

    def __init__(self, at: bytes) -> None:
        self._at: bytes | None = at

    def __call__(self, topic: str, data: bytes | None) -> bytes | None:
        if data == self._at:
            self._at = None
            raise UserInterrupt
        return data


async def both_fetched(broker: ScriptedBroker, consumer: AsyncConsumer) -> None:
    """What is in both partitions has come, partition 0 first, and was not taken yet."""
    consumer.assign([_T0, _T1])
    for tp in (_T0, _T1):
        consumer.seek(tp, 0)
    await consumer.start()
    await broker.saw(ApiKey.FETCH, 3)  # more is asked for


async def _all_values(consumer: AsyncConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        try:
            found += [record.value for record in await consumer.poll(0.05)]
        except UserInterrupt:
            continue
    return sorted(found)


async def test_an_interruption_in_a_deserializer_loses_no_record_that_poll_has_taken(watchdog: Watchdog) -> None:
    config: dict[str, object] = {"value.deserializer": FailsOnce(b"1")}
    async with watchdog(), ScriptedBroker({"t": 2}) as broker, broker.consumer(config) as consumer:
        broker.kafka.write(_T0, b"0")
        broker.kafka.write(_T1, b"1")
        await both_fetched(broker, consumer)
        assert await _all_values(consumer, 2) == [b"0", b"1"]


async def test_an_interruption_in_a_deserializer_loses_nothing_of_a_paused_partition(watchdog: Watchdog) -> None:
    config: dict[str, object] = {"value.deserializer": FailsOnce(b"1")}
    async with watchdog(), ScriptedBroker({"t": 2}) as broker, broker.consumer(config) as consumer:
        broker.kafka.write(_T0, b"0")
        broker.kafka.write(_T1, b"1")
        await both_fetched(broker, consumer)
        consumer.pause([_T0])
        assert await _all_values(consumer, 1) == [b"1"]
        consumer.resume([_T0])
        assert await _all_values(consumer, 1) == [b"0"]


async def test_partitions_are_revoked_once_when_a_rebalance_is_broken_off_by_close(watchdog: Watchdog) -> None:
    revoked: list[list[TopicPartition]] = []
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_GROUP) as consumer:
        consumer.subscribe(["t"], on_revoked=revoked.append)
        while not consumer.assignment():
            await consumer.poll(0.01)
        broker.kafka.coordinator.group("g").rebalancing = True
        beats = len(broker.asked(ApiKey.HEARTBEAT))
        await broker.saw(ApiKey.HEARTBEAT, beats + 2)  # the first of them was answered
        await consumer.poll(0)  # the rebalance begins, and has not come to its callback
        for _ in range(10):
            await asyncio.sleep(0)
        await consumer.close()
        assert revoked == [[_T0]]


async def test_poll_goes_on_behind_fetches_that_have_nothing_for_the_user(watchdog: Watchdog) -> None:
    """Two that hold only markers are in store, and then none is asked for until one of them was taken."""
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer() as consumer:
        log = broker.kafka.log("t")

        async def a_marker_comes(asked: Asked, usual: Usual) -> Answer:
            log.mark(commit=False, producer_id=1, epoch=0)
            return await usual()

        broker.kafka.write(_T0, b"first")
        broker.script(ApiKey.FETCH, as_usual, a_marker_comes, a_marker_comes)
        consumer.assign([_T0])
        assert [record.value for record in await consumer.poll(_POLL_S)] == [b"first"]
        await broker.saw(ApiKey.FETCH, 3)
        consumer.pause([_T0])
        while consumer.current_lag(_T0) != 2:
            assert await consumer.poll(0.05) == []  # meanwhile all that is due at the beginning is done
        consumer.resume([_T0])
        broker.kafka.write(_T0, b"last")
        assert [record.value for record in await consumer.poll(_POLL_S)] == [b"last"]
