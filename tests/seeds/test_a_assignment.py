"""The notes' examples of assignment, A1 to A8, each as a live group of our consumers on our broker.

The coordinator makes a member's id from its `client.id`, so C0, C1 and C2 come in this order, as in the notes. A9, the
comparison with Apache Kafka's classes, is in `tests/interop/test_assignors.py`; A10 is in `tests/assign/server`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from ottla import AssignorError, AsyncAdmin, AsyncConsumer, NewTopic, TopicPartition
from ottla.assign import Assignment, Cluster, RangeAssignor, Subscription
from ottla.assign.examples import BroadcastAssignor, WeightedAssignor
from ottla.testing.in_loop import AsyncBroker

_PATIENCE_S = 60.0
Wanted = Mapping[str, tuple[str, ...]]
TWO_ON_BOTH = {"C0": ("t0", "t1"), "C1": ("t0", "t1")}
UNEQUAL = {"C0": ("t0",), "C1": ("t0", "t1"), "C2": ("t0", "t1", "t2")}
FOUR = ("t0", "t1", "t2", "t3")
THREE = {"C0": "t0p0 t1p1 t3p0", "C1": "t0p1 t2p0 t3p1", "C2": "t1p0 t2p1"}


class LiveGroup:
    """Consumers of one group; `taken` and `revoked` are what their callbacks were told, per member."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.members: dict[str, AsyncConsumer] = {}
        self.revoked: dict[str, list[TopicPartition]] = {}
        self.taken: dict[str, list[TopicPartition]] = {}

    def join(self, name: str, topics: tuple[str, ...], strategy: object, **more: object) -> None:
        settings = {
            "bootstrap.servers": self._servers,
            "client.id": name,
            "group.id": "g",
            "partition.assignment.strategy": strategy,
            "heartbeat.interval.ms": 50,
            **more,
        }
        consumer = self.members[name] = AsyncConsumer(settings)
        gone, came = self.revoked.setdefault(name, []), self.taken.setdefault(name, [])
        consumer.subscribe(list(topics), on_revoked=gone.extend, on_assigned=came.extend)

    async def leave(self, name: str) -> None:
        await self.members.pop(name).close()

    async def close(self) -> None:
        for name in list(self.members):
            await self.leave(name)

    @property
    def has(self) -> dict[str, str]:
        """Each member's partitions in the notes' way of writing."""
        return {
            name: " ".join(f"{tp.topic}p{tp.partition}" for tp in sorted(member.assignment()))
            for name, member in sorted(self.members.items())
        }

    async def comes_to(self, expected: Mapping[str, str]) -> None:
        """Poll until the members have what is expected."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while self.has != expected:
                    await asyncio.gather(*(member.poll(0.02) for member in self.members.values()))
        except TimeoutError:
            pytest.fail(f"{self.has} is not {expected}")


@asynccontextmanager
async def live_group(*, together: bool = False, **topics: int) -> AsyncIterator[LiveGroup]:
    """A broker, topics, and an empty group; `together`: its first members come in one generation."""
    delay = {"group.initial.rebalance.delay.ms": "1000"} if together else {}
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(AsyncBroker(delay))
        async with AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            await admin.create_topics([NewTopic(name, count) for name, count in topics.items()])
        group = LiveGroup(broker.bootstrap_servers)
        stack.push_async_callback(group.close)
        yield group


async def test_a1_range() -> None:
    async with live_group(t0=3, t1=3) as group:
        for name, topics in TWO_ON_BOTH.items():
            group.join(name, topics, "range")
        await group.comes_to({"C0": "t0p0 t0p1 t1p0 t1p1", "C1": "t0p2 t1p2"})


async def test_a2_round_robin() -> None:
    async with live_group(t0=3, t1=3) as group:
        for name, topics in TWO_ON_BOTH.items():
            group.join(name, topics, "roundrobin")
        await group.comes_to({"C0": "t0p0 t0p2 t1p1", "C1": "t0p1 t1p0 t1p2"})


async def test_a3_round_robin_with_unequal_subscriptions() -> None:
    async with live_group(t0=1, t1=2, t2=3) as group:
        for name, topics in UNEQUAL.items():
            group.join(name, topics, "roundrobin")
        await group.comes_to({"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"})


async def test_a4_sticky_with_unequal_subscriptions() -> None:
    async with live_group(together=True, t0=1, t1=2, t2=3) as group:
        for name, topics in UNEQUAL.items():
            group.join(name, topics, "sticky")
        await group.comes_to({"C0": "t0p0", "C1": "t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"})


async def _three(group: LiveGroup, strategy: str) -> None:
    """The three members of A5. They join at once, so that nobody has anything before."""
    for name in THREE:
        group.join(name, FOUR, strategy)
    await group.comes_to(THREE)


async def test_a5_sticky_across_a_death() -> None:
    async with live_group(together=True, t0=2, t1=2, t2=2, t3=2) as group:
        await _three(group, "sticky")
        await group.leave("C1")
        await group.comes_to({"C0": "t0p0 t0p1 t1p1 t3p0", "C2": "t1p0 t2p0 t2p1 t3p1"})


async def test_a6_cooperative_sticky_leaves_alone_what_does_not_move() -> None:
    async with live_group(together=True, t0=2, t1=2, t2=2, t3=2) as group:
        await _three(group, "cooperative-sticky")
        for heard in (group.revoked, group.taken):
            for partitions in heard.values():
                partitions.clear()
        group.join("C3", FOUR, "cooperative-sticky")
        await group.comes_to({"C0": "t0p0 t3p0", "C1": "t0p1 t2p0", "C2": "t1p0 t2p1", "C3": "t1p1 t3p1"})
        moved = [TopicPartition("t1", 1), TopicPartition("t3", 1)]
        assert sorted(tp for gone in group.revoked.values() for tp in gone) == moved
        assert sorted(tp for came in group.taken.values() for tp in came) == moved
        assert sorted(group.taken["C3"]) == moved


async def test_a7_weighted_and_broadcast() -> None:
    async with live_group(t0=4) as group:
        group.join("C0", ("t0",), [WeightedAssignor(1)])
        group.join("C1", ("t0",), [WeightedAssignor(3)])
        await group.comes_to({"C0": "t0p2", "C1": "t0p0 t0p1 t0p3"})
    async with live_group(t0=2) as group:
        for name in ("C0", "C1"):
            group.join(name, ("t0",), [BroadcastAssignor()], **{"enable.auto.commit": False})
        await group.comes_to({"C0": "t0p0 t0p1", "C1": "t0p0 t0p1"})


async def test_a7_a_custom_assignor_beside_built_in_ones() -> None:
    class Backwards(RangeAssignor):
        name = "backwards"

        def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
            members = sorted(subscriptions)
            given = super().assign(cluster, subscriptions)
            return {member: given[other] for member, other in zip(members, reversed(members), strict=True)}

    async with live_group(t0=3) as group:
        for name in ("C0", "C1"):
            group.join(name, ("t0",), [Backwards(), "roundrobin"])
        await group.comes_to({"C0": "t0p2", "C1": "t0p0 t0p1"})
        group.join("C2", ("t0",), "range,roundrobin")  # has no Backwards: they fall back to what all have
        await group.comes_to({"C0": "t0p0", "C1": "t0p1", "C2": "t0p2"})


async def test_a7_an_assignor_that_forgets_a_partition_is_told_to_its_user() -> None:
    class Forgets(RangeAssignor):
        name = "forgets"

        def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
            return {member: Assignment(()) for member in subscriptions}

    async with live_group(t0=1) as group:
        group.join("C0", ("t0",), [Forgets()])
        with pytest.raises(AssignorError, match=r"'forgets' failed in assign\(\): it gave t0-0 to nobody"):
            await group.members["C0"].poll(_PATIENCE_S)


async def test_a8_the_group_votes_for_what_most_members_prefer() -> None:
    async with live_group(t0=3, t1=3) as group:
        group.join("C0", ("t0", "t1"), "range,roundrobin")
        await group.comes_to({"C0": "t0p0 t0p1 t0p2 t1p0 t1p1 t1p2"})
        group.join("C1", ("t0", "t1"), "roundrobin,range")
        group.join("C2", ("t0", "t1"), "roundrobin")
        await group.comes_to({"C0": "t0p0 t1p0", "C1": "t0p1 t1p1", "C2": "t0p2 t1p2"})
