"""A broker in the running event loop, for tests that look inside it or move its clock by hand."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from ottla.base.clock import Clock, ManualClock
from ottla.broker.app import BrokerApp
from ottla.broker.config import BrokerConfig
from ottla.broker.node import Node
from ottla.client.admin.types import GroupDescription
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.testing import handy
from ottla.testing.broker import TEST_DEFAULTS
from ottla.testing.clock import BrokerClock, SkippingClock
from ottla.testing.faults import Faults
from ottla.testing.ports import free_port
from ottla.testing.slow_disk import SlowDisk, checked_s


class AsyncBroker:
    """`async with AsyncBroker() as broker:` — a broker on a free port of this loop, with a directory of its own.

    It listens where `config` says (`listeners`), else on one port that speaks plain text.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        data_dir: Path | None = None,
        clock: Clock | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._given = config or {}
        self._temporary = tempfile.TemporaryDirectory(prefix="ottla-") if data_dir is None else None
        self.data_dir = Path(self._temporary.name) if self._temporary is not None else Path(data_dir or "")
        self._clock = clock or SkippingClock()
        #: Its time: `broker.clock.advance(60_000)`; for a clock that was given, if that can be moved.
        self.clock = BrokerClock(self._advance)
        self._app: BrokerApp | None = None
        self._disk: SlowDisk | None = None
        self.host, self.port = "127.0.0.1", 0
        self.faults = faults
        self._bound: dict[str, str] = {}

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to."""
        return f"{self.host}:{self.port}"

    def listener(self, name: str) -> str:
        """See `Broker.listener`."""
        return self._bound[name]

    @property
    def node(self) -> Node:
        """The broker's parts: configuration, metadata, partitions, coordinators."""
        assert self._app is not None, "the broker does not run"
        assert self._app.node is not None, "the broker does not run"
        return self._app.node

    async def create_topics(self, *names: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """See `Broker.create_topics`."""
        await handy.create_topics(self.bootstrap_servers, names, partitions, config)

    async def records(
        self, topic: str, *, read_committed: bool = False, timeout_s: float = 30.0
    ) -> list[ConsumerRecord]:
        """See `Broker.records`."""
        return await handy.records(self.bootstrap_servers, topic, read_committed=read_committed, timeout_s=timeout_s)

    async def wait_for_group(
        self, group_id: str, *, members: int | None = None, timeout_s: float = 30.0
    ) -> GroupDescription:
        """See `Broker.wait_for_group`."""
        return await handy.stable_group(self.bootstrap_servers, group_id, members, timeout_s)

    def slow_disk(self, delay_s: float) -> None:
        """See `Broker.slow_disk`. Writes keep the test's own loop waiting, as they do the broker's."""
        if self._disk is None:
            raise ValueError("the broker does not run: start it first")
        self._disk.delay_s = checked_s(delay_s)

    def _advance(self, delta_ms: int) -> None:
        if not isinstance(self._clock, SkippingClock | ManualClock):
            raise ValueError(f"the broker was given a {type(self._clock).__name__}: move that")
        self._clock.advance(delta_ms)
        if self._app is not None and self._app.node is not None:
            self._app.node.timers.fire()

    async def start(self) -> "AsyncBroker":
        """Start, and wait until the coordinators are loaded."""
        config = {
            **TEST_DEFAULTS,
            **self._given,
            "log.dirs": (str(self.data_dir),),
        }
        port = self.port or free_port()
        config.setdefault("listeners", (f"PLAINTEXT://{self.host}:{port if self.faults is None else 0}",))
        if self.faults is not None:
            self.port = self.faults.listen(self.host, port)
            config["advertised.listeners"] = (f"PLAINTEXT://{self.host}:{self.port}",)
        broker_config = BrokerConfig(config)
        self._disk = SlowDisk(broker_config.data_dir, 0.0 if self._disk is None else self._disk.delay_s)
        self._app = BrokerApp(broker_config, self._clock, self._disk)
        _, port = await self._app.start()
        self._bound = {name: str(endpoint) for name, endpoint in self._app.bound.items()}
        if self.faults is not None:
            self.faults.connect(self.host, port)
        else:
            self.port = port
        await self._app.loaded()
        return self

    async def stop(self) -> None:
        """Stop in order; the data stays until the context is left."""
        if self.faults is not None:
            self.faults.close()
        if self._app is not None:
            await self._app.stop()
            self._app = None

    async def __aenter__(self) -> "AsyncBroker":
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._temporary is not None:
            self._temporary.cleanup()
