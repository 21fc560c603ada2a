"""No answer waits in the kernel for the next request (Nagle's algorithm): TCP_NODELAY by any listener, in any loop."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from ottla.broker.server import Connection
from ottla.testing import AsyncBroker
from tests.broker import four_listeners


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_connections_send_at_once(tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    four_listeners.make_certificates(tmp_path)
    tls = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))

    async def connect(broker: AsyncBroker, protocol: str) -> None:
        host, _, port = broker.listener(protocol).rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=tls if protocol.endswith("SSL") else None)
        here = writer.get_extra_info("sockname")
        met: list[asyncio.Transport] = []
        while not met:
            await asyncio.sleep(0)  # until the broker has it, too
            theirs = [each._transport for each in gc.get_objects() if isinstance(each, Connection)]
            met = [each for each in theirs if each is not None and each.get_extra_info("peername") == here]
        assert met[0].get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), protocol
        writer.close()

    async def every() -> None:
        async with AsyncBroker(four_listeners.settings(tmp_path)) as broker:
            for protocol in four_listeners.PROTOCOLS:
                await connect(broker, protocol)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(every())
