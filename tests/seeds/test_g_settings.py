"""Settings of a group of its own, G22, on a broker whose time the test moves."""

from __future__ import annotations

from ottla import AsyncAdmin, NewTopic
from ottla.base.clock import ManualClock
from ottla.client.admin.types import AlterConfig, ConfigResource, ResourceType
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.wire_client import WireClient

_KEY = "consumer.session.timeout.ms"


async def test_g22_a_group_can_have_settings_of_its_own() -> None:
    """`consumer.session.timeout.ms` of one group, by IncrementalAlterConfigs: a silent member stays for so long.

    Another group keeps the broker's. Both members are of the consumer protocol, and say nothing after their join.
    """
    async with (
        AsyncBroker(clock=ManualClock()) as broker,
        AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
        WireClient(broker) as client,
    ):
        await admin.create_topics([NewTopic("t", 1)])
        mine, other = (ConfigResource(ResourceType.GROUP, name) for name in ("g", "another"))
        await admin.incremental_alter_configs({mine: [AlterConfig(_KEY, "50000")]})
        found = await admin.describe_configs([mine, other])
        assert [found[each][_KEY].value for each in (mine, other)] == ["50000", "45000"]
        await broker.node.groups.ready()
        for name in ("g", "another"):
            join = ConsumerGroupHeartbeatRequest(
                name, "m1", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("t",), topic_partitions=()
            )
            assert (await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, join)).error_code == ErrorCode.NONE
        stayed = []
        for passed_ms in (44_999, 1, 4_999, 1):
            broker.clock.advance(passed_ms)
            groups = await admin.describe_groups(["g", "another"])
            stayed.append((len(groups["g"].members), len(groups["another"].members)))
        assert stayed == [(1, 1), (1, 0), (1, 0), (0, 0)]
