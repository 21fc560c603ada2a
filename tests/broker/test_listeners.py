"""Listeners by name: each has an address of its own that its clients are told; what cannot work is refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import uvloop

from ottla.base.errors import ConfigError
from ottla.broker.app import CannotListenError
from ottla.broker.config import BrokerConfig
from ottla.broker.config_keys import STANDARD_AUTHORIZER
from ottla.broker.listeners import Endpoint
from ottla.log.checkpoint import CLEAN_SHUTDOWN_MARKER
from ottla.testing import AsyncBroker, Broker
from ottla.testing.ports import free_port
from ottla.wire.apis import ApiKey
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.broker import four_listeners
from tests.broker.wire_client import WireClient

TWO = {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


class _Address(NamedTuple):
    host: str
    port: int


def _address(text: str) -> _Address:
    host, _, port = text.rpartition(":")
    return _Address(host, int(port))


async def _told(client: WireClient) -> set[tuple[str, int]]:
    """The addresses in every answer that holds one."""
    metadata = await client.ask(ApiKey.METADATA, MetadataRequest())
    cluster = await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest())
    found = await client.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=("g",)))
    return {(each.host, each.port) for each in (*metadata.brokers, *cluster.brokers, *found.coordinators)}


async def test_each_client_is_told_the_address_of_the_listener_it_came_by() -> None:
    advertised = {"advertised.listeners": "OUTSIDE://kafka.example:0,INSIDE://inside.example:1234"}
    async with AsyncBroker({**TWO, **advertised}) as broker:
        inside, outside = _address(broker.listener("INSIDE")), _address(broker.listener("OUTSIDE"))
        assert broker.bootstrap_servers == broker.listener("INSIDE")
        assert await broker.node.groups.ready() is None
        async with WireClient(inside) as client:
            assert await _told(client) == {("inside.example", 1234)}
        async with WireClient(outside) as client:
            assert await _told(client) == {("kafka.example", outside.port)}


async def test_without_advertised_listeners_it_is_the_listeners_own_address() -> None:
    async with AsyncBroker(TWO) as broker:
        assert await broker.node.groups.ready() is None
        for name in ("INSIDE", "OUTSIDE"):
            address = _address(broker.listener(name))
            async with WireClient(address) as client:
                assert await _told(client) == {address}


async def test_the_limit_on_connections_is_one_for_all_listeners() -> None:
    async with (
        AsyncBroker({**TWO, "max.connections": "1"}) as broker,
        WireClient(_address(broker.listener("INSIDE"))) as first,
    ):
        await first.ask_api_versions()
        async with WireClient(_address(broker.listener("OUTSIDE"))) as second:
            assert await second.drained() == b""
        await first.ask_api_versions()


async def test_a_port_that_is_taken_is_named_and_the_others_are_given_back() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    taken = server.sockets[0].getsockname()[1]
    first = {"listeners": f"INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:{taken}"}
    broker = AsyncBroker({**TWO, **first})
    with pytest.raises(CannotListenError, match=f"cannot listen on 127.0.0.1:{taken}"):
        await broker.start()
    server.close()
    await server.wait_closed()
    async with broker:
        assert broker.listener("OUTSIDE") == f"127.0.0.1:{taken}"


async def _knock(address: tuple[str, int], came: list[socket.socket]) -> None:
    """Come as soon as somebody listens there."""
    while not came:
        client = socket.socket()
        client.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(client, address)
            came.append(client)
        except OSError:
            client.close()
        await asyncio.sleep(0)


async def _start_where_a_port_is_taken(directory: Path, second: str) -> None:
    first = ("127.0.0.1", free_port())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        keys = {key: value for key, value in four_listeners.settings(directory).items() if "listener" not in key}
        keys["listeners"] = f"PLAINTEXT://127.0.0.1:{first[1]},{second}://127.0.0.1:{taken.getsockname()[1]}"
        keys["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT,SSL:SSL"
        came: list[socket.socket] = []
        knocking = asyncio.create_task(_knock(first, came))
        with pytest.raises(CannotListenError):
            await AsyncBroker(keys, data_dir=directory / "data").start()
        knocking.cancel()
        assert not came, "nobody may come before all addresses are there"


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("second", ["OUTSIDE", "SSL"])
def test_a_start_that_fails_for_a_port_has_served_nobody_and_leaves_the_mark_of_a_clean_stop(
    tmp_path: Path, second: str, loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    four_listeners.make_certificates(tmp_path)

    async def start_and_stop() -> None:
        async with AsyncBroker(data_dir=tmp_path / "data") as broker:
            if "t" not in broker.node.image.topics:
                await broker.create_topics("t")

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(start_and_stop())
        runner.run(_start_where_a_port_is_taken(tmp_path, second))
        assert (tmp_path / "data" / CLEAN_SHUTDOWN_MARKER).exists()
        caplog.clear()
        runner.run(start_and_stop())
        assert caplog.text == ""


async def test_who_stops_a_broker_that_could_not_start_changes_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listeners = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        failed = AsyncBroker({"listeners": listeners}, data_dir=tmp_path)
        with pytest.raises(CannotListenError):
            await failed.start()
    async with AsyncBroker(data_dir=tmp_path) as broker:
        await failed.stop()
        await broker.create_topics("t")
        assert not (tmp_path / CLEAN_SHUTDOWN_MARKER).exists(), "it runs"


def test_a_process_says_where_each_listener_is() -> None:
    with Broker(TWO) as broker:
        assert broker.listener("INSIDE") == broker.bootstrap_servers
        assert broker.listener("OUTSIDE") != broker.bootstrap_servers
        broker.create_topics("t")


@pytest.mark.parametrize(
    ("host", "is_told"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True), ("", True)]
)
async def test_a_listener_that_other_machines_reach_and_that_asks_nobody_is_told(
    host: str, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncBroker({"listeners": f"PLAINTEXT://{host}:0", "advertised.listeners": "PLAINTEXT://127.0.0.1:0"}):
        told = [each for each in caplog.messages if "asks nobody who they are" in each]
    assert [each.startswith("listener PLAINTEXT") for each in told] == [True] * is_told


async def test_with_an_authorizer_it_is_told_as_whom_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    listeners = {"listeners": "PLAINTEXT://0.0.0.0:0", "advertised.listeners": "PLAINTEXT://127.0.0.1:0"}
    async with AsyncBroker({**listeners, "authorizer.class.name": STANDARD_AUTHORIZER}):
        assert "whoever reaches it does what ACLs allow User:ANONYMOUS" in caplog.text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"listeners": "INSIDE://:1,OUTSIDE://:1"}, "INSIDE and OUTSIDE are both on :1"),
        ({"listeners": "INSIDE://:1,inside://:2"}, "INSIDE is named twice"),
        ({"listeners": "INSIDE://:1,ELSE://:2"}, "does not say what ELSE speaks"),
        ({"listener.security.protocol.map": "INSIDE:TLS,OUTSIDE:PLAINTEXT"}, "INSIDE is to speak TLS; there are"),
        ({"advertised.listeners": "INSIDE://here:1"}, "OUTSIDE is missing"),
        ({"advertised.listeners": "INSIDE://here:1,OUTSIDE://here:2,ELSE://here:3"}, "there is no ELSE"),
        ({"listener.name.INSIDE.ssl.client.auth": "none"}, "in small letters, are inside, outside"),
        ({"listener.name.inside.num.partitions": "2"}, "num.partitions is no setting of a listener"),
        ({"listener.name.inside.ssl.client.aut": "none"}, "did you mean ssl.client.auth"),
        ({"listener.name.inside.ssl.client.auth": "never"}, "must be one of"),
        ({"listener.name.inside.ssl.client.auth": "none"}, "listener INSIDE speaks PLAINTEXT.*which has no TLS"),
        ({"listener.name.inside.plain.sasl.jaas.config": "secret-word"}, "INSIDE speaks PLAINTEXT.*which has no SASL"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        BrokerConfig({**TWO, **change})
    assert "secret-word" not in str(refused.value)


def test_an_endpoint_knows_whether_it_is_of_this_machine() -> None:
    local = [Endpoint(host, 1).is_local for host in ("127.0.0.1", "127.9.9.9", "::1", "LocalHost")]
    assert local == [True] * 4
    assert not any(Endpoint(host, 1).is_local for host in ("", "0.0.0.0", "::", "10.0.0.1", "kafka.example"))
