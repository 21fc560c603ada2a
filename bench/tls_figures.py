"""What TLS costs a broker: librdkafka's rates by a TLS listener beside those by a plain one, and handshakes.

The address that a figure gets has three parts, with semicolons between them: the plain listener, the TLS one, and the
PEM file of the authority.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench.broker_cpu import cpu_s
from bench.broker_figures import consume, new_topic, produce
from bench.canary import HIGH, SLOWEST, canary
from bench.figure import CPU, MICROSECONDS, MILLISECONDS, RATE, Measure, Unit, Values
from bench.peers import OttlaPeer, Peer
from bench.worker import BROKER_PID
from ottla.testing.ports import free_port
from tests.client.certificates import Authority
from tests.interop.apache import ApacheKafka

NOTE = (
    "Python's ssl on the side of our broker, Java's on the other, TLS 1.3. Handshakes are whole ones, one after the "
    "other, by a client in Python, whose share of the machine is in their rate; the broker's CPU is the broker's alone."
)
_HANDSHAKES = Unit("handshakes/s", True)
_RECORDS = {"100 B": (100, 1_000_000), "1 KB": (1_000, 400_000)}


class Addresses(NamedTuple):
    """Of one broker."""

    plain: str
    tls: str
    authority: str

    @property
    def settings(self) -> dict[str, Any]:
        """librdkafka's, for the TLS listener."""
        return {"security.protocol": "SSL", "ssl.ca.location": self.authority, "broker.address.family": "v4"}

    def __str__(self) -> str:
        return ";".join(self)


def _at(bootstrap: str) -> Addresses:
    return Addresses(*bootstrap.split(";"))


def _cpu_s() -> float:
    return cpu_s(int(os.environ[BROKER_PID]))


def _counted(found: Values, name: str, records: int, rate: Callable[[], float]) -> None:
    before = _cpu_s()
    found[name] = rate()
    found[f"{name}: CPU of the broker"] = (_cpu_s() - before) / records * 1e6


def rates(bootstrap: str, scale: float) -> Values:
    """In and out, plain and by TLS."""
    at, found = _at(bootstrap), Values()
    for name, (size, full) in _RECORDS.items():
        records = int(full * scale)
        for way, address, settings in (("plain", at.plain, {}), ("TLS", at.tls, at.settings)):
            topic = new_topic(at.plain)
            into = partial(produce, address, topic, records, size, **settings)
            out = partial(consume, address, topic, records, **settings)
            _counted(found, f"in, {name}, {way}", records, into)
            _counted(found, f"out, {name}, {way}", records, out)
    return found


def _shake_hands(at: Addresses, times: int) -> None:
    host, _, port = at.tls.rpartition(":")
    context = ssl.create_default_context(cafile=at.authority)
    context.check_hostname = False
    for _ in range(times):
        with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as secure:
            secure.getpeercert()


def handshakes(bootstrap: str, scale: float) -> Values:
    """Whole handshakes, one after the other."""
    at, count = _at(bootstrap), max(100, int(1_000 * scale))
    _shake_hands(at, 50)
    before, start = _cpu_s(), time.perf_counter()
    _shake_hands(at, count)
    taken_s, used_s = time.perf_counter() - start, _cpu_s() - before
    return {"handshakes": count / taken_s, "a handshake: CPU of the broker": used_s / count * 1e6}


def others(bootstrap: str, scale: float) -> Values:
    """What a small producer and consumer on the plain listener wait while four clients only shake hands."""
    at, found, count = _at(bootstrap), Values(), max(100, int(500 * scale))
    with canary(at.plain, f"four clients with {count} TLS handshakes each", found), ThreadPoolExecutor(4) as clients:
        for done in [clients.submit(_shake_hands, at, count) for _ in range(4)]:
            done.result()
    return found


FIGURES: dict[str, Measure] = {"rates": rates, "handshakes": handshakes, "others": others}


def unit_of(name: str) -> Unit:
    """The unit of a value of this module."""
    if name.endswith((SLOWEST, HIGH)):
        return MILLISECONDS
    if name.startswith("a handshake"):
        return MICROSECONDS
    if name == "handshakes":
        return _HANDSHAKES
    return CPU if "CPU" in name else RATE


@contextmanager
def secure_pair() -> Iterator[dict[str, tuple[Peer, Addresses]]]:
    """Both brokers with a plain and a TLS listener, on a directory that is removed afterwards."""
    with TemporaryDirectory(prefix="ottla-bench-") as name:
        directory = Path(name)
        authority = Authority(directory, "authority")
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.certificate("broker", host="127.0.0.1")),
        }
        ports = {"ottla": free_port(), "Apache Kafka": free_port()}
        apache = ApacheKafka(directory / "apache", settings, heap="1G")
        theirs = f"PLAINTEXT://{apache.bootstrap},TLS://127.0.0.1:{ports['Apache Kafka']}"
        apache.config |= {
            "listeners": f"{theirs},CONTROLLER://127.0.0.1:{apache.controller_port}",
            "advertised.listeners": theirs,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
        }
        ours = OttlaPeer(directory / "ottla", settings, more_listeners={"TLS": ("SSL", ports["ottla"])})
        ours.start_and_wait()
        try:
            with apache:
                yield {
                    name: (peer, Addresses(peer.bootstrap, f"127.0.0.1:{ports[name]}", str(authority.file)))
                    for name, peer in (("ottla", ours), ("Apache Kafka", apache))
                }
        finally:
            ours.stop()
