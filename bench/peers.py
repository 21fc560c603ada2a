"""The brokers as processes, both up at the same time; only one is spoken to at a time."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from bench.figure import Values
from bench.loud import loud_producer
from ottla.cli.demo.processes import BrokerProcess, broker_command
from ottla.testing.ports import free_port
from tests.interop.apache import ApacheKafka

#: What both get told, so that they do the same work.
_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
}

#: After kill -9 under thousands of groups a JVM takes minutes: that is a figure, not a fault.
_RESTART_S = 900.0
_LOOK_S = 0.01


class Peer(Protocol):
    """A broker that figures are taken of."""

    @property
    def bootstrap(self) -> str:
        """Its address."""
        ...

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def kill9(self) -> None:
        """SIGKILL."""
        ...


class OttlaPeer(BrokerProcess):
    """Our broker, started as a user starts it."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        more_listeners: Mapping[str, tuple[str, int]] = MappingProxyType({}),
        *,
        python: str = sys.executable,
    ) -> None:
        """`more_listeners` have a protocol and a port, by name. `python` is whose Ottla it is."""
        directory.mkdir(parents=True)
        port = free_port()
        listeners: list[str] = []
        if more_listeners:
            where = ",".join(f"{name}://127.0.0.1:{number}" for name, (_, number) in more_listeners.items())
            protocols = ",".join(f"{name}:{protocol}" for name, (protocol, _) in more_listeners.items())
            listeners += ["-o", f"listeners=PLAINTEXT://127.0.0.1:{port},{where}"]
            listeners += ["-o", f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,{protocols}"]
        command = broker_command(None, python, port, directory / "data", listeners)
        command += [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        super().__init__(command, port, directory / "broker.log")

    def restart(self) -> None:
        """Start again on the same directory."""
        self.start_and_wait()


@contextmanager
def both(directory: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[dict[str, Peer]]:
    """Ours and Apache Kafka's, running. `more` are settings that both get beside the usual ones."""
    settings = {**_SETTINGS, **more}
    ours = OttlaPeer(directory / "ottla", settings)
    ours.start_and_wait()
    try:
        with ApacheKafka(directory / "apache", settings, heap="1G", ready_timeout_s=_RESTART_S) as apache:
            yield {"ottla": ours, "Apache Kafka": apache}
    finally:
        ours.stop()


@contextmanager
def own_pair(more: Mapping[str, str] = MappingProxyType({})) -> Iterator[dict[str, Peer]]:
    """Both brokers on a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory, both(Path(directory), more) as peers:
        yield peers


def memory_mb(pid: int) -> float:
    """Resident memory of a process, in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def share_of_memory_mb(pid: int) -> float:
    """The same, of pages that several processes have only its part: the sum over them counts each page once.

    0 of a process that has ended.
    """
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def recovery(peer: Peer) -> Values:
    """kill -9 with everything that the figures before have written, then seconds until a write is acknowledged."""
    assert isinstance(peer, OttlaPeer | ApacheKafka)
    peer.kill9()
    start = time.perf_counter()
    peer.restart()
    started = time.perf_counter() - start
    producer = loud_producer({"bootstrap.servers": peer.bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce("bench-after-recovery", b"x")
    if producer.flush(300):
        raise TimeoutError("no acknowledgement within 300 s of the restart")
    return {"kill -9 to answering": started, "kill -9 to the first acknowledgement": time.perf_counter() - start}


def restarted(peer: Peer, answered: Callable[[], None]) -> float:
    """Seconds from kill -9 until `answered` returns, on the same directory."""
    assert isinstance(peer, OttlaPeer | ApacheKafka)
    peer.kill9()
    return _started(peer, answered)


def stopped_and_started(peer: Peer, answered: Callable[[], None]) -> tuple[float, float]:
    """Seconds from SIGTERM until the broker has ended, and from then until `answered` returns.

    TimeoutError when it does not end.
    """
    assert isinstance(peer, OttlaPeer | ApacheKafka)
    start = time.perf_counter()
    os.kill(peer.pid, signal.SIGTERM)
    while os.waitid(os.P_PID, peer.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.perf_counter() - start > _RESTART_S:
            raise TimeoutError(f"the broker has not ended {_RESTART_S:.0f} s after SIGTERM")
        time.sleep(_LOOK_S)
    taken = time.perf_counter() - start
    peer.stop()
    return taken, _started(peer, answered)


def _started(peer: OttlaPeer | ApacheKafka, answered: Callable[[], None]) -> float:
    start = time.perf_counter()
    peer.restart()
    answered()
    return time.perf_counter() - start
