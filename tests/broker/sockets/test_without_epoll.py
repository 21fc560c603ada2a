"""A loop whose sockets cannot be watched from outside, as on a system without epoll: it serves itself, without TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.errors import ConfigError
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.messages.list_groups import ListGroupsRequest
from tests.broker import four_listeners
from tests.broker.wire_client import WireClient


class _Bare(asyncio.SelectorEventLoop):
    """asyncio's own transports do not use this."""

    def add_reader(self, *_args: object) -> None:
        raise RuntimeError("no sockets but the loop's own")


def test_clients_are_served_by_the_loop() -> None:
    async def ask() -> None:
        async with AsyncBroker() as broker, WireClient(broker) as client:
            assert broker._app is not None
            assert broker._app._connections.poller() is None
            for _ in range(3):
                assert (await client.ask(ApiKey.LIST_GROUPS, ListGroupsRequest())).error_code == 0

    with asyncio.Runner(loop_factory=_Bare) as runner:
        runner.run(ask())


def test_tls_is_refused(tmp_path: Path) -> None:
    four_listeners.make_certificates(tmp_path)

    async def start() -> None:
        with pytest.raises(ConfigError, match="listener SSL: TLS needs a system that has epoll, as Linux"):
            await AsyncBroker(four_listeners.settings(tmp_path)).start()

    with asyncio.Runner(loop_factory=_Bare) as runner:
        runner.run(start())
