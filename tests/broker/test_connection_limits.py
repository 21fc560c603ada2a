"""Limits on connections, on real sockets: who is closed, who waits, and what the configuration may say."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest
import uvloop

from ottla.base.clock import ManualClock
from ottla.base.errors import ConfigError
from ottla.broker.config import BrokerConfig
from ottla.broker.connections import limits_of
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.frames import encode_request
from ottla.wire.messages import alter_client_quotas as alter
from ottla.wire.messages.list_groups import ListGroupsRequest
from tests.broker.wire_client import WireClient


async def _is_served(client: WireClient) -> bool:
    try:
        return bool((await client.ask(ApiKey.LIST_GROUPS, ListGroupsRequest())).error_code == 0)
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


@pytest.mark.parametrize(
    "config",
    [
        {"max.connections.per.ip": 2},
        {"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "127.0.0.1:2,10.0.0.1:7"},
        {"max.connections.per.ip.overrides": "localhost:2"},
        {"listener.name.plaintext.max.connections": 2},
        {"max.connections": 2},
    ],
    ids=str,
)
async def test_one_connection_too_many_is_closed_until_another_goes(config: dict[str, object]) -> None:
    async with AsyncBroker(config) as broker, WireClient(broker) as first:
        assert await _is_served(first)
        async with WireClient(broker) as second:
            assert await _is_served(second)
            async with WireClient(broker) as third:
                assert not await _is_served(third)
            assert await _is_served(second)
        while not await _comes_in(broker):
            pass


async def _comes_in(broker: AsyncBroker) -> bool:
    """Whether a new connection is served: the broker may not have seen yet that another one is closed."""
    async with WireClient(broker) as client:
        return await _is_served(client)


async def test_many_refusals_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with AsyncBroker({"max.connections.per.ip": 1}, clock=ManualClock()) as broker, WireClient(broker) as first:
        assert await _is_served(first)
        for _ in range(5):
            assert not await _comes_in(broker)
        broker.clock.advance(10_000)
        assert not await _comes_in(broker)
    lines = [each.getMessage() for each in caplog.records if "refusing" in each.getMessage()]
    assert lines == [
        "max.connections.per.ip reached: refusing /127.0.0.1",
        "max.connections.per.ip reached: refusing /127.0.0.1 (4 more since the last such line)",
    ]


async def test_who_comes_too_fast_is_served_later_and_others_meanwhile() -> None:
    config = {"max.connection.creation.rate": 1, "quota.window.num": 2}
    async with AsyncBroker(config, clock=ManualClock()) as broker, WireClient(broker) as first:
        assert await _is_served(first)
        async with WireClient(broker) as second:
            answer = asyncio.create_task(_is_served(second))
            for _ in range(20):
                assert await _is_served(first)
            assert not answer.done()
            assert await answer


async def _early(refused: bool) -> bytes:
    """What a client gets that comes too fast, and whose first request is there before the broker sees it come."""
    config = {} if refused else {"max.connection.creation.rate": 1}
    async with AsyncBroker({**config, "quota.window.num": 2}, clock=ManualClock()) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        async with WireClient(broker) as first:
            if refused:
                limit = alter.OpData("connection_creation_rate", 1.0)
                limited = alter.EntryData((alter.EntityData("ip", "127.0.0.1"),), (limit,))
                await first.ask(ApiKey.ALTER_CLIENT_QUOTAS, alter.AlterClientQuotasRequest((limited,)))
                async with WireClient(broker):
                    pass
            with socket.create_connection((host, int(port))) as early:
                early.sendall(encode_request(ApiKey.LIST_GROUPS, 0, 1, "early", ListGroupsRequest()))
                early.setblocking(False)
                for _ in range(20):
                    assert await _is_served(first)
                if not refused:
                    with pytest.raises(BlockingIOError):
                        early.recv(100)
                with suppress(ConnectionResetError):  # closed, with what it has sent unread
                    return await asyncio.get_running_loop().sock_recv(early, 100)
                return b""


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("refused", [True, False])
def test_what_a_client_that_comes_too_fast_has_sent_already_is_not_served_before_its_time(
    loop: Callable[[], asyncio.AbstractEventLoop], refused: bool
) -> None:
    """uvloop begins to read behind `connection_made`, whatever that has asked for."""
    with asyncio.Runner(loop_factory=loop) as runner:
        assert bool(runner.run(_early(refused))) is not refused


async def test_an_address_that_comes_too_fast_is_closed() -> None:
    async with AsyncBroker({"quota.window.num": 2}, clock=ManualClock()) as broker, WireClient(broker) as first:
        limited = alter.EntryData(
            (alter.EntityData("ip", "127.0.0.1"),), (alter.OpData("connection_creation_rate", 1.0),)
        )
        answer = await first.ask(ApiKey.ALTER_CLIENT_QUOTAS, alter.AlterClientQuotasRequest((limited,)))
        assert answer.entries[0].error_code == 0
        assert not broker.node.quotas.is_on, "requests are not counted for it"
        assert await _comes_in(broker)
        assert not await _comes_in(broker)
        unlimited = limited._replace(ops=(alter.OpData("connection_creation_rate", 0.0, True),))
        await first.ask(ApiKey.ALTER_CLIENT_QUOTAS, alter.AlterClientQuotasRequest((unlimited,)))
        assert await _comes_in(broker)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"max.connections.per.ip": 0}, "max.connections.per.ip is 0"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "'10.0.0.1' is not address:number"),
        ({"max.connections.per.ip.overrides": "10.0.0.1:x"}, "'10.0.0.1:x' is not address:number"),
        ({"max.connections.per.ip.overrides": "no.such.host.invalid:1"}, "there is no no.such.host.invalid"),
        ({"listener.name.plaintext.max.connections.per.ip": 1}, "is no setting of a listener"),
    ],
)
def test_limits_that_make_no_sense_are_refused(config: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        limits_of(BrokerConfig(config))
