"""Groups on one broker: eight librdkafka members, one group of a thousand, ten thousand groups."""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from confluent_kafka import Consumer

from bench.broker_cpu import counted
from bench.broker_figures import new_topic
from bench.canary import canary
from bench.figure import GROUPS, MEGABYTES, MILLISECONDS, SECONDS, Measure, Unit, Values
from bench.group_members import SESSION_MS, ClassicMember, ConsumerMember, Stable
from bench.wire import Wire, check
from ottla.wire.apis import ApiKey
from ottla.wire.consumer_protocol import encode_subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

NOTE = (
    "Both brokers with `group.initial.rebalance.delay.ms=0`; else Apache Kafka's defaults. The group of 8 is of "
    "librdkafka with its defaults: the median and the slowest of five groups a round. Who joins first is a race, and "
    "who is late waits for a heartbeat. The other members are raw requests of one Python process. A group of 1,000 "
    "goes from the first join until all are in one generation (classic), or until each has its one of 1,000 partitions "
    "(consumer). A rolling restart takes a fifth of the members at a time, and the next fifth when all are stable "
    "again; static members go one by one. 10,000 groups of one member each join, sync, commit and send a heartbeat "
    "over 32 connections, and stay. Another client writes and reads a record every 5 ms meanwhile. CPU is seconds of "
    "the broker's process, all threads: of the five groups of 8 together, and with what the other client asks. Aim for "
    "the group of 8: 2.0."
)
_EIGHT, _TIMES = 8, 5
_WAIT_S = 60.0
_MANY, _WAVES, _SHARED = 1_000, 5, 16
_GROUPS, _CONNECTIONS, _LONG_MS = 10_000, 32, 1_800_000
_PREFIX = "bench-many"


def eight(bootstrap: str, scale: float) -> Values:
    """Eight librdkafka members of a fresh group until each has its three of 24 partitions, under both protocols."""
    found: Values = {}
    for protocol in ("classic", "consumer"):
        name, cpu = f"group of 8, {protocol}", Values()
        with counted(cpu, name):
            taken = [_eight(bootstrap, protocol) for _ in range(max(1, round(_TIMES * scale)))]
        found[f"{name}, until stable"] = statistics.median(taken)
        found[f"{name}, until stable, the slowest"] = max(taken)
        found |= cpu
    return found


def _eight(bootstrap: str, protocol: str) -> float:
    topic = new_topic(bootstrap, 3 * _EIGHT)
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "group.protocol": protocol}
    start = time.perf_counter()
    members: list[Any] = [Consumer(settings) for _ in range(_EIGHT)]
    for member in members:
        member.subscribe([topic])
    while any(len(member.assignment()) != 3 for member in members) and time.perf_counter() - start < _WAIT_S:
        for member in members:
            member.poll(0.005)
    taken = time.perf_counter() - start
    for member in members:
        member.close()
    return taken


def classic(bootstrap: str, scale: float) -> Values:
    """A classic group of a thousand: to stable, and through a rolling restart; then one of static members."""
    return asyncio.run(_classic(bootstrap, max(_WAVES, int(_MANY * scale))))


async def _classic(bootstrap: str, count: int) -> Values:
    found: Values = {}
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(bootstrap)) for _ in range(count)]
        for static in (False, True):
            group_id, stable = f"bench-{uuid.uuid4().hex[:10]}", Stable(count)
            members = [
                ClassicMember(wire, group_id, f"m{n}", stable, f"i{n}" if static else None)
                for n, wire in enumerate(wires)
            ]
            await members[0].find()  # the internal topic is there before the clock starts
            async with asyncio.TaskGroup() as tasks:
                kind = "static members" if static else "classic"
                await _through(bootstrap, f"group of {count:,}, {kind}", members, stable, found, tasks, static=static)
    return found


async def _through(
    bootstrap: str,
    name: str,
    members: Sequence[ClassicMember],
    stable: Stable,
    found: Values,
    tasks: asyncio.TaskGroup,
    *,
    static: bool,
) -> None:
    async def begin(member: ClassicMember, number: int) -> None:
        await member.find()
        await member.join()
        await member.live(3.0 * number / len(members))

    with canary(bootstrap, name, found):
        with _timed(found, f"{name}, until stable"):
            lives = [tasks.create_task(begin(member, n)) for n, member in enumerate(members)]
            await stable.wait()
        with _timed(found, f"{name}, rolling restart"):
            if static:
                for number, member in enumerate(members):
                    lives[number].cancel()
                    await asyncio.wait([lives[number]])
                    member.forget()
                    await member.join()
                    lives[number] = tasks.create_task(member.live(3.0))
            else:
                for wave in range(_WAVES):
                    part = range(wave, len(members), _WAVES)
                    for number in part:
                        lives[number].cancel()
                    await asyncio.wait([lives[number] for number in part])
                    await asyncio.gather(*(members[number].leave() for number in part))
                    for number in part:
                        lives[number] = tasks.create_task(begin(members[number], number))
                    await stable.wait()
            await stable.wait()
    for life in lives:
        life.cancel()
    await asyncio.wait(lives)
    await asyncio.gather(*(member.leave() for member in members))


def consumer(bootstrap: str, scale: float) -> Values:
    """A group of a thousand by the consumer protocol: to stable, and through a rolling restart."""
    count = max(_WAVES, int(_MANY * scale))
    return asyncio.run(_consumer(bootstrap, new_topic(bootstrap, count), count))


async def _consumer(bootstrap: str, topic: str, count: int) -> Values:
    found: Values = {}
    stable, name = Stable(count), f"group of {count:,}, consumer"
    lives: dict[ConsumerMember, asyncio.Task[None]] = {}

    async def begin(member: ConsumerMember) -> None:
        await member.beat()
        await member.live()

    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(bootstrap)) for _ in range(_SHARED)]
        await ClassicMember(wires[0], topic, "", stable).find()
        async with asyncio.TaskGroup() as tasks:

            def start(number: int) -> None:
                member = ConsumerMember(wires[number % _SHARED], topic, topic, stable)
                lives[member] = tasks.create_task(begin(member))

            with canary(bootstrap, name, found):
                with _timed(found, f"{name}, until stable"):
                    for number in range(count):
                        start(number)
                    await stable.wait()
                with _timed(found, f"{name}, rolling restart"):
                    old = list(lives)
                    for wave in range(_WAVES):
                        await _stop(lives, old[wave::_WAVES])
                        for number in range(len(old[wave::_WAVES])):
                            start(number)
                        await stable.wait()
            await _stop(lives, list(lives))
    return found


async def _stop(lives: dict[ConsumerMember, asyncio.Task[None]], members: Sequence[ConsumerMember]) -> None:
    for member in members:
        lives[member].cancel()
    await asyncio.wait([lives.pop(member) for member in members])
    await asyncio.gather(*(member.leave() for member in members))


def many(bootstrap: str, scale: float) -> Values:
    """Ten thousand groups of one member: made, then described and listed."""
    return asyncio.run(_many(bootstrap, new_topic(bootstrap), max(1, int(_GROUPS * scale))))


async def _many(bootstrap: str, topic: str, count: int) -> Values:
    names = [f"{_PREFIX}-{number:05}" for number in range(count)]
    found: Values = {}

    async def share(wire: Wire, mine: Sequence[str]) -> None:
        for name in mine:
            await _whole_life(wire, name, topic)

    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(bootstrap)) for _ in range(_CONNECTIONS)]
        await ClassicMember(wires[0], names[0], "", Stable(1)).find()
        with canary(bootstrap, f"{count:,} groups", found):
            with _timed(found, f"{count:,} groups made"):
                await asyncio.gather(*(share(wire, names[n::_CONNECTIONS]) for n, wire in enumerate(wires)))
            found[f"{count:,} groups made"] = count / found[f"{count:,} groups made"]
            with _timed(found, f"{count:,} groups described"):
                await described(wires[0], names)
            with _timed(found, f"{count:,} groups listed"):
                await _listed(wires[0], count)
    return found


@contextmanager
def _timed(found: Values, name: str) -> Iterator[None]:
    """Seconds, and the broker's CPU seconds, of the body."""
    start, cpu = time.perf_counter(), Values()
    with counted(cpu, name):
        yield
    found[name] = time.perf_counter() - start
    found |= cpu


async def _whole_life(wire: Wire, name: str, topic: str) -> None:
    """FindCoordinator, JoinGroup twice, SyncGroup, OffsetCommit, Heartbeat."""
    await wire.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=(name,)))
    protocols = (JoinGroupRequestProtocol("range", encode_subscription(ConsumerProtocolSubscription((topic,)))),)
    request = JoinGroupRequest(name, _LONG_MS, SESSION_MS, "", None, "consumer", protocols)
    member_id = (await wire.ask(ApiKey.JOIN_GROUP, request)).member_id
    joined = await wire.ask(ApiKey.JOIN_GROUP, request._replace(member_id=member_id))
    check("JoinGroup", joined.error_code)
    offered = (SyncGroupRequestAssignment(member_id, b"x"),)
    asked = SyncGroupRequest(name, joined.generation_id, member_id, None, "consumer", "range", offered)
    check("SyncGroup", (await wire.ask(ApiKey.SYNC_GROUP, asked)).error_code)
    topics = (OffsetCommitRequestTopic(name=topic, partitions=(OffsetCommitRequestPartition(0, 42),)),)
    commit = OffsetCommitRequest(name, joined.generation_id, member_id, topics=topics)
    check("OffsetCommit", (await wire.ask(ApiKey.OFFSET_COMMIT, commit)).topics[0].partitions[0].error_code)
    beat = HeartbeatRequest(name, joined.generation_id, member_id)
    check("Heartbeat", (await wire.ask(ApiKey.HEARTBEAT, beat)).error_code)


async def described(wire: Wire, names: Sequence[str]) -> None:
    """Until every one of these groups is described as stable, with its member."""
    for begin in range(0, len(names), 100):
        request = DescribeGroupsRequest(tuple(names[begin : begin + 100]))
        while True:
            answer = await wire.ask(ApiKey.DESCRIBE_GROUPS, request)
            if all(not each.error_code and each.group_state == "Stable" and each.members for each in answer.groups):
                break
            check("DescribeGroups", next((e for e in {g.error_code for g in answer.groups} if e not in _LOADING), 0))
            await asyncio.sleep(0.01)


_LOADING = (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


async def _listed(wire: Wire, count: int) -> None:
    groups = (await wire.ask(ApiKey.LIST_GROUPS, ListGroupsRequest())).groups
    assert sum(each.group_id.startswith(_PREFIX) for each in groups) >= count


def all_there(bootstrap: str, scale: float) -> None:
    """After a restart: until all groups of `many` are described as stable."""

    async def ask() -> None:
        async with Wire(bootstrap) as wire:
            await described(wire, [f"{_PREFIX}-{number:05}" for number in range(max(1, int(_GROUPS * scale)))])

    asyncio.run(ask())


FIGURES: dict[str, Measure] = {"eight": eight, "classic": classic, "consumer": consumer, "many": many}


def unit_of(name: str) -> Unit:
    """The unit of a value of this module."""
    if name.endswith("CPU"):
        return SECONDS
    if name.endswith("made"):
        return GROUPS
    if name.startswith("resident"):
        return MEGABYTES
    return MILLISECONDS if "another client" in name else SECONDS
