"""Consumer groups over the wire: settings of a group, an assignor in Python, and what is switched off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.assign.server import GroupSpec, Partitions
from ottla.base.errors import ConfigError
from ottla.broker.metadata.image import GROUP_RESOURCE
from ottla.broker.runtime.assigning import server_assignors
from ottla.log.checkpoint import CLEAN_SHUTDOWN_MARKER
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_configs import AlterableConfig as OldConfig
from ottla.wire.messages.alter_configs import AlterConfigsRequest
from ottla.wire.messages.alter_configs import AlterConfigsResource as OldResource
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.wire_client import WireClient

pytestmark = pytest.mark.usefixtures("group_coordinator")

_SET, _DELETE = 0, 1


def _join(member: str = "m1", **more: Any) -> ConsumerGroupHeartbeatRequest:
    given: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ("t",), "topic_partitions": ()}
    return ConsumerGroupHeartbeatRequest("g", member, 0, **{**given, **more})


async def _alter(client: WireClient, name: str, value: str | None, *, group: str = "g", operation: int = _SET) -> Any:
    resource = AlterConfigsResource(GROUP_RESOURCE, group, (AlterableConfig(name, operation, value),))
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest((resource,)))
    return answer.responses[0]


async def _settings(client: WireClient) -> dict[str, tuple[str, int]]:
    resource = DescribeConfigsResource(GROUP_RESOURCE, "g", None)
    (answer,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest((resource,), True))).results
    return {each.name: (each.value, each.config_source) for each in answer.configs}


async def test_g22_a_group_can_have_settings_of_its_own(broker: AsyncBroker, client: WireClient) -> None:
    await broker.node.topics.create("t", 1, {})
    heartbeat = "consumer.heartbeat.interval.ms"
    assert (await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, _join())).heartbeat_interval_ms == 500
    assert not (await _alter(client, heartbeat, "7000")).error_code
    assert (await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, _join())).heartbeat_interval_ms == 7_000
    found = await _settings(client)
    assert {name: setting for name, setting in found.items() if name.startswith("consumer.")} == {
        heartbeat: ("7000", 8),
        "consumer.session.timeout.ms": ("45000", 5),
        "consumer.assignment.interval.ms": ("0", 4),
    }
    assert not (await _alter(client, heartbeat, None, operation=_DELETE)).error_code
    assert (await _settings(client))[heartbeat] == ("500", 4)
    replaced = OldResource(GROUP_RESOURCE, "g", (OldConfig("consumer.session.timeout.ms", "50000"),))
    assert not (await client.ask(ApiKey.ALTER_CONFIGS, AlterConfigsRequest((replaced,)))).responses[0].error_code
    assert (await _settings(client))["consumer.session.timeout.ms"] == ("50000", 8)


async def test_g22_settings_of_share_and_streams_groups_are_checked_and_kept(
    broker: AsyncBroker, client: WireClient
) -> None:
    """As by Apache Kafka (tests/interop/test_kafka_configs.py); and they disturb no consumer group."""
    await broker.node.topics.create("t", 1, {})
    before = await _settings(client)
    assert {before[name] for name in ("share.delivery.count.limit", "streams.num.standby.replicas")} == {
        ("5", 5),
        ("0", 5),
    }
    for name, value in (("share.auto.offset.reset", "by_duration:PT1H"), ("streams.num.standby.replicas", "2")):
        assert not (await _alter(client, name, value)).error_code
        assert (await _settings(client))[name] == (value, 8)
    assert not (await _alter(client, "consumer.heartbeat.interval.ms", "7000")).error_code
    assert (await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, _join())).heartbeat_interval_ms == 7_000


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("share.isolation.level", "x", ErrorCode.INVALID_CONFIG, "Invalid value 'x'"),
        ("share.auto.offset.reset", "by_duration:-PT1H", ErrorCode.INVALID_CONFIG, "Invalid value"),
        ("share.auto.offset.reset", f"by_duration:P{'9' * 400}D", ErrorCode.INVALID_CONFIG, "Invalid value"),
        ("streams.num.standby.replicas", "3", ErrorCode.INVALID_CONFIG, "streams.num.standby.replicas must be less"),
        (
            "share.session.timeout.ms",
            "44999",
            ErrorCode.INVALID_CONFIG,
            "share.session.timeout.ms must be greater than or equal to group.share.min.session.timeout.ms",
        ),
        ("consumer.nonsense", "1", ErrorCode.INVALID_CONFIG, "Unknown group config name: consumer.nonsense"),
        ("consumer.session.timeout.ms", "x", ErrorCode.INVALID_CONFIG, "Invalid value 'x'"),
        (
            "consumer.session.timeout.ms",
            "1",
            ErrorCode.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            "consumer.heartbeat.interval.ms",
            "99999",
            ErrorCode.INVALID_CONFIG,
            "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
    ],
)
async def test_settings_of_a_group_that_cannot_be(
    client: WireClient, name: str, value: str, error: ErrorCode, message: str
) -> None:
    answer = await _alter(client, name, value)
    assert answer.error_code == error
    assert answer.error_message.startswith(message)
    assert (await _alter(client, name, value, group="")).error_code == ErrorCode.INVALID_REQUEST


async def test_the_consumer_protocol_can_be_switched_off() -> None:
    async with (
        AsyncBroker({"group.coordinator.rebalance.protocols": "classic"}) as broker,
        WireClient(broker) as client,
    ):
        answer = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, _join())
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        described = await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(("g",)))
        assert described.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_describing_a_group_without_a_name(client: WireClient) -> None:
    described = await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(("", "none"), True))
    assert [each.error_code for each in described.groups] == [
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]


# -- assignors in Python


class Gate:
    """An assignor that waits until the test lets it go on."""

    name = "gate"
    opened = threading.Event()
    asked = threading.Event()

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        Gate.asked.set()
        assert Gate.opened.wait(20)
        return {"m1": dict.fromkeys(group.topics, (2, 1, 0))}


class Raises:
    """An assignor that has a fault."""

    name = "raises"

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        raise RuntimeError("out of order")


async def _settled(client: WireClient, epoch: int, until: int) -> Any:
    """The answer of the first heartbeat that has the epoch `until`; the loop goes on meanwhile."""
    for _ in range(50_000):  # each is a turn of the loop, and more
        beat = ConsumerGroupHeartbeatRequest("g", "m1", epoch, topic_partitions=None)
        answer = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, beat)
        if answer.member_epoch == until:
            return answer
    raise AssertionError("the target does not come")


async def test_a10_a_slow_assignor_holds_up_nobody() -> None:
    Gate.opened.clear()
    names = f"uniform,{__name__}:Gate"
    async with AsyncBroker({"group.consumer.assignors": names}) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 3, {})
        await broker.node.groups.ready()
        joined = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, _join(server_assignor="gate"))
        assert (joined.error_code, joined.member_epoch, joined.assignment.topic_partitions) == (0, 1, ())
        await asyncio.to_thread(Gate.asked.wait)
        other = _join("m9")._replace(group_id="other")
        assert (await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, other)).member_epoch == 2
        Gate.opened.set()
        answer = await _settled(client, 1, 2)
        assert [each.partitions for each in answer.assignment.topic_partitions] == [(0, 1, 2)]


async def test_a10_an_assignor_that_raises_keeps_the_target_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    names = f"{__name__}:Raises"
    async with AsyncBroker({"group.consumer.assignors": names}) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 3, {})
        await broker.node.groups.ready()
        await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, _join())
        beat = ConsumerGroupHeartbeatRequest("g", "m1", 1, topic_partitions=None)
        for _ in range(50_000):  # as in `_settled`
            assert not (await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, beat)).error_code
            if "out of order" in caplog.text:
                break
        assert "group g keeps the target assignment that it has: assignor raises failed for epoch 2" in caplog.text


async def test_the_worked_example_knows_the_lag() -> None:
    names = "ottla.assign.server.lag_weighted:LagWeighted"
    async with AsyncBroker({"group.consumer.assignors": names}) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 3, {})
        await broker.node.groups.ready()
        await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, _join())
        answer = await _settled(client, 1, 2)
        assert [each.partitions for each in answer.assignment.topic_partitions] == [(0, 1, 2)]


async def test_a_start_with_an_assignor_that_there_is_not_changes_nothing_in_the_directory(tmp_path: Path) -> None:
    await (await AsyncBroker(data_dir=tmp_path).start()).stop()
    before = _files(tmp_path)
    assert tmp_path / CLEAN_SHUTDOWN_MARKER in before
    with pytest.raises(ConfigError, match="no assignor 'sticky'"):
        await AsyncBroker({"group.consumer.assignors": "sticky"}, data_dir=tmp_path).start()
    assert _files(tmp_path) == before


def _files(data_dir: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}


class NoAssignor:
    """It has no method `assign`."""

    name = "nothing"


class Leaves:
    """It ends whoever makes one."""

    def __init__(self) -> None:
        raise SystemExit(3)


class NoWord:
    """It does not say whether it wants lags."""

    name = "no word"

    @property
    def wants_lags(self) -> bool:
        raise ValueError("no word")

    def assign(self, group: object) -> object:
        return group


class NoCall:
    """It has the two names, and nothing that can be called."""

    name = "no call"
    assign = "to the first"


class TakesTwo:
    """It would get one argument."""

    name = "takes two"

    def assign(self, cluster: object, subscriptions: object) -> object:
        return cluster, subscriptions


class TakesMore:
    """It can do with one argument."""

    name = "takes more"

    def assign(self, group: object, *, loud: bool = False) -> object:
        return group, loud


class NoName:
    """Its name cannot be had."""

    @property
    def name(self) -> str:
        raise ValueError("no name")

    def assign(self, group: object) -> object:
        return group


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nonsense", "no assignor 'nonsense'; there are uniform, range, and module:Class"),
        (
            "no.such.module:Thing",
            "no.such.module:Thing cannot be used: ModuleNotFoundError: No module named 'no'; "
            "install it, or put its directory on the broker's PYTHONPATH",
        ),
        ("ottla.assign.server:Thing", "cannot be used: AttributeError"),
        (f"{__name__}:Leaves", "cannot be used: SystemExit: 3"),
        (f"{__name__}:NoName", "cannot be used: ValueError: no name"),
        (f"{__name__}:NoWord", "cannot be used: ValueError: no word"),
        (f"{__name__}:NoAssignor", "is no assignor: it needs a name and a method assign"),
        (f"{__name__}:NoCall", "is no assignor: it needs a name and a method assign"),
        (
            "ottla.assign.examples:BroadcastAssignor",
            "BroadcastAssignor is an assignor of the client's side: it belongs into partition.assignment.strategy",
        ),
        (
            f"{__name__}:TakesTwo",
            "TakesTwo is no assignor: its method assign cannot take the group as its one argument",
        ),
        ("range", "two assignors have the name 'range'"),
    ],
)
def test_a10_an_assignor_that_cannot_be_used_is_told_at_the_start(name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        server_assignors(["range", name])


def test_a10_assign_may_have_more_arguments_than_it_needs() -> None:
    assert list(server_assignors([f"{__name__}:TakesMore"])) == ["takes more"]


def test_apache_kafkas_own_classes_may_be_named() -> None:
    java = "org.apache.kafka.coordinator.group.assignor.UniformAssignor"
    assert list(server_assignors([java, "range"])) == ["uniform", "range"]
