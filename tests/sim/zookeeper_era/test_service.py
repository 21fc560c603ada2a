"""H1: the ensemble in the loop: clients, their order of seeing, and sessions that end without them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import Context

import pytest

from sim.loop import HOST, SimLoop, run
from sim.zookeeper_era import paths
from sim.zookeeper_era.consumer import Consumer, Settings
from sim.zookeeper_era.ledger import Ledger
from sim.zookeeper_era.script import Event, Kind
from sim.zookeeper_era.service import Client, Service
from sim.zookeeper_era.tree import Change, Happened
from sim.zookeeper_era.weather import Weather


def _in_a_world(play: Callable[[Service], Awaitable[None]], seed: int = 1, partitions: int = 4) -> Ledger:
    loop = SimLoop(random.Random(seed))
    ledger = Ledger(partitions)

    async def main() -> None:
        await play(Service(loop, Weather(f"service {seed}"), ledger))

    run(main(), loop)
    assert not loop.unheard
    return ledger


async def _pass(service: Service, seconds: float) -> None:
    over = service.loop.create_future()
    service.loop.call_later(seconds, over.set_result, None)
    await over


@pytest.mark.parametrize("seed", range(20))
def test_nobody_sees_what_is_new_before_being_told_and_everybody_what_he_wrote_himself(seed: int) -> None:
    async def play(service: Service) -> None:
        writer, reader = (Client(service, name, 6_000) for name in ("writer", "reader"))
        await writer.start()
        await reader.start()
        assert await reader.children(paths.IDS, watch=True) == ()
        for number in range(5):
            await writer.create(paths.member(str(number)), ephemeral=True)
            assert str(number) in await writer.children(paths.IDS)
        while not await reader.children(paths.IDS):
            assert reader.changes.empty()
        assert reader.changes.get_nowait() == Change(paths.IDS, Happened.CHILDREN)
        await _pass(service, 5.0)
        assert reader.changes.empty()

    assert _in_a_world(play, seed).notifications == 1


def test_a_client_that_stood_still_finds_its_session_over_and_goes_on_in_a_new_one() -> None:
    async def play(service: Service) -> None:
        client, other = (Client(service, name, 6_000) for name in ("client", "other"))
        await other.start()
        pings = asyncio.create_task(other.keep_alive())
        await client.start()
        await client.create(paths.owner(0), "client", ephemeral=True)
        await _pass(service, 3.0)
        assert await other.exists(paths.owner(0))
        await _pass(service, 10.0)
        assert not await other.exists(paths.owner(0))
        await client.create(paths.owner(1), "client", ephemeral=True)
        assert client.changes.get_nowait() is None
        await _pass(service, 2.0)
        assert await other.children(paths.OWNERS) == ("1",)
        pings.cancel()

    _in_a_world(play)


def test_two_requests_on_a_session_that_is_over_open_one_new_session() -> None:
    async def play(service: Service) -> None:
        client = Client(service, "client", 6_000)
        await client.start()
        await _pass(service, 10.0)
        names = (paths.member("a"), paths.member("b"))
        await asyncio.gather(*(client.create(name, ephemeral=True) for name in names))
        assert client.changes.get_nowait() is None
        assert client.changes.empty()
        owners = {(await client.get(name)).owner for name in names}
        assert owners == {2}

    _in_a_world(play)


def test_a_consumer_that_cannot_claim_gives_up_after_its_tries_and_waits_for_a_change() -> None:
    async def play(service: Service) -> None:
        holder = Client(service, "holder", 60_000)
        await holder.start()
        await holder.create(paths.owner(2), "somebody", ephemeral=True)
        service.ledger.event(Event(service.now_ms(), Kind.START, "member"), service.now_ms())
        consumer = Consumer("member", service, Weather("member"), Settings(max_retries=3, backoff_ms=1_000))
        consumer.start()
        await _pass(service, 10.0)
        assert (service.ledger.failed_attempts, service.ledger.given_up) == (3, 1)
        assert service.ledger.reading() == {"member": frozenset()}
        assert await holder.children(paths.OWNERS) == ("2",)
        await holder.close()
        await _pass(service, 10.0)
        assert service.ledger.reading() == {"member": frozenset()}, "the owner's node is watched by nobody"
        another = Client(service, "another", 60_000)
        await another.start()
        await another.create(paths.member("zero"), "other topic", ephemeral=True)
        await _pass(service, 10.0)
        assert service.ledger.reading() == {"member": frozenset(range(4))}
        assert await another.children(paths.OWNERS) == ("0", "1", "2", "3")

    assert _in_a_world(play).rebalances == 2


def test_a_consumer_leaves_its_paths_in_zookeeper() -> None:
    async def play(service: Service) -> None:
        service.ledger.event(Event(0, Kind.START, "member"), service.now_ms())
        Consumer("member", service, Weather("member")).start()
        await _pass(service, 12.0)
        seen = Client(service, "seen", 60_000)
        await seen.start()
        assert await seen.children(paths.IDS) == ("member",)
        assert (await seen.get(paths.member("member"))).data == paths.TOPIC
        assert [(await seen.get(paths.owner(partition))).data for partition in range(4)] == ["member"] * 4
        assert (await seen.get(paths.offset(0))).owner == 0
        service.loop.kill("member")
        await _pass(service, 12.0)
        assert (await seen.children(paths.IDS), await seen.children(paths.OWNERS)) == ((), ())
        assert await seen.children(paths.OFFSETS) == ("0", "1", "2", "3")

    _in_a_world(play)


def test_what_a_process_has_sent_arrives_though_it_is_killed() -> None:
    async def play(service: Service) -> None:
        client = Client(service, "client", 6_000)
        await client.start()
        context = Context()
        context.run(HOST.set, "doomed")
        task = service.loop.create_task(client.create("/last-words"), context=context)
        await _pass(service, 0.0001)
        service.loop.kill("doomed")
        await _pass(service, 3.0)
        assert not task.done()
        assert all(server.tree.exists("/last-words") for server in service.ensemble.servers)

    _in_a_world(play)
