"""Groups of the consumer protocol (KIP-848) in our admin client, on both brokers, with members that are not ours."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer

from ottla import Admin, AsyncAdmin, KafkaError, NewTopic, OffsetAndMetadata, TopicPartition
from ottla.client.admin.types import GroupDescription
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.broker.wire_client import WireClient

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
_WAIT_S = 60.0


@pytest.fixture
def admin(any_broker: str) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": any_broker}) as made:
        yield made


@pytest.fixture
def topic(admin: Admin, fresh: Fresh) -> str:
    name = fresh("group-admin")
    admin.create_topics([NewTopic(name, 4)])
    return name


def _member(bootstrap: str, group: str, **more: str) -> Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"}
    return Consumer(settings | {key.replace("_", "."): value for key, value in more.items()})


def _described(
    admin: Admin, group: str, members: list[Consumer], done: Callable[[GroupDescription], bool]
) -> GroupDescription:
    """The group as soon as it is so. Its members are polled meanwhile."""
    until = time.monotonic() + _WAIT_S
    while True:
        for each in members:
            each.poll(0.05)
        try:
            found = admin.describe_groups([group])[group]
        except KafkaError as error:
            assert error.code == ErrorCode.GROUP_ID_NOT_FOUND
            continue
        if done(found):
            return found
        assert time.monotonic() < until, f"the group did not get there: {found}"


def _shared_out(group: GroupDescription, members: list[Consumer]) -> bool:
    """Stable, and the pattern was resolved: until then its member has nothing. Who is given partitions has them a
    moment later than the coordinator says so."""
    shares = [len(each.partitions) for each in group.members]
    return group.state == "Stable" and shares == [len(each.assignment()) for each in members] == [2, 2]


def test_g18_a_group_of_the_consumer_protocol_is_listed_and_described(
    any_broker: str, admin: Admin, topic: str, fresh: Fresh
) -> None:
    group = fresh("kip848")
    with ExitStack() as stack:
        by_name, by_pattern = members = [
            _member(any_broker, group, group_instance_id="one", client_id="by-name", client_rack="here"),
            _member(any_broker, group, client_id="by-pattern"),
        ]
        for each in members:
            stack.callback(each.close)
        by_name.subscribe([topic])
        by_pattern.subscribe([f"^{topic}$"])
        found = _described(admin, group, members, lambda group: _shared_out(group, members))
        assert (found.type, found.protocol_type, found.protocol) == ("consumer", "consumer", "uniform")
        assert found.epoch == found.target_epoch
        assert (found.epoch or 0) >= 2
        named = {each.client_id: each for each in found.members}
        assert {name: (each.topics, each.pattern) for name, each in named.items()} == {
            "by-name": ((topic,), None),
            "by-pattern": ((), f"(^{topic}$)"),  # librdkafka adds the brackets
        }
        assert named["by-name"].group_instance_id == "one"
        assert {each.epoch for each in found.members} == {found.epoch}
        assert {each.is_classic for each in found.members} == {False}
        for name, each in (("by-name", by_name), ("by-pattern", by_pattern)):
            owned = tuple(sorted(TopicPartition(tp.topic, tp.partition) for tp in each.assignment()))
            assert named[name].partitions == named[name].target == owned
            assert len(owned) == 2
        assert group in {each.group_id for each in admin.list_groups(types=["consumer"], states=["Stable"])}
        assert group not in {each.group_id for each in admin.list_groups(types=["classic"])}


class _Address:
    def __init__(self, bootstrap: str) -> None:
        self.host, _, port = bootstrap.rpartition(":")
        self.port = int(port)


async def _joined(client: WireClient, group: str, topic: str, instance: str | None) -> str:
    """A member that is there for as long as its session; it does nothing by itself."""
    request = ConsumerGroupHeartbeatRequest(
        group, str(uuid.uuid4()), 0, instance, rebalance_timeout_ms=60_000, subscribed_topic_names=(topic,)
    )
    answer: ConsumerGroupHeartbeatResponse = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, 1)
    assert (answer.error_code, answer.member_id) == (ErrorCode.NONE, request.member_id), answer.error_message
    return request.member_id


async def test_g18_members_of_the_consumer_protocol_are_removed(any_broker: str, topic: str, fresh: Fresh) -> None:
    """Apache Kafka's own admin client cannot: LeaveGroup is for members of the classic protocol."""
    group = fresh("kip848-removed")
    async with WireClient(_Address(any_broker)) as client, AsyncAdmin({"bootstrap.servers": any_broker}) as admin:
        one, two, three = [await _joined(client, group, topic, instance) for instance in ("one", "two", None)]

        async def left() -> set[str]:
            return {each.member_id for each in (await admin.describe_groups([group]))[group].members}

        assert await left() == {one, two, three}
        with pytest.raises(KafkaError) as refused:
            await admin.alter_group_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(3)})
        assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
        assert set(await admin.remove_members(group, [three], instances=["one"])) == {one, three}
        assert await left() == {two}
        assert await admin.remove_members(group) == [two]
        assert (await admin.describe_groups([group]))[group].state == "Empty"
        tp = TopicPartition(topic, 0)
        await admin.alter_group_offsets(group, {tp: OffsetAndMetadata(3)})
        assert (await admin.list_group_offsets(group))[tp].offset == 3
        await admin.delete_group_offsets(group, [tp])
        assert await admin.list_group_offsets(group) == {}
        await admin.delete_groups([group])
