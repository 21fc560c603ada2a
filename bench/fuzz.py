"""The long form of the fuzz: random frames for hours, on a broker of its own, while a canary is served.

    python -m bench.fuzz --hours 1      (`make fuzz HOURS=1`)

Three processes: a broker with a listener of each protocol; this one, which sends anything to each listener, before and
after authentication; and the canary, which writes a record every 20 ms over plain text and over SASL_SSL. First the
canary runs alone, then with the fuzz, then with half-open TLS handshakes. At last the fuzz goes on for a sixth of the
time on a broker that tells the turns of its loop (`bench.turns`). One JSON object says what was seen. The exit code is
1 if a broker has ended, has logged an error, does not let anybody in at the end, has taken more memory than its limits
allow, or has kept its loop for long; the canary's times are told and not judged: they say as much about the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import re
import resource
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from ottla.base.limits import MAX_RECEIVED_BYTES, MAX_STRANGERS_BYTES, MAX_UNREAD_BYTES
from ottla.testing import Broker
from tests.broker import four_listeners
from tests.broker.fuzzing import anything, hello
from tests.broker.say_who import say_who
from tests.broker.wire_client import WireClient

T = TypeVar("T")

_CANARIES: Final = ("PLAINTEXT", "SASL_SSL")
_AT_ONCE: Final = 8
_MIB: Final = 1 << 20
#: What the broker allows everybody together, in MiB, beside what it has without anybody.
_ALLOWED_MIB: Final = (MAX_RECEIVED_BYTES + MAX_STRANGERS_BYTES + MAX_UNREAD_BYTES) // _MIB
#: A client that is never answered (a join that waits) is left alone after this.
_PATIENCE_S: Final = 0.2


#: Turns of the loop from so many milliseconds on are told; one with so many of CPU is a fault.
_LONG_TURN_MS: Final = 20
_TOO_LONG_TURN_MS: Final = 250
_TURN: Final = re.compile(r"turn of \d+ ms, (\d+) of CPU: (.*)")
#: The start and the end of a broker, when nobody is served, is the longest callback of its turn (`bench.turns`).
_UNSERVED: Final = " ms: task _serve:"
_TURNS_TOLD: Final = 10


class _Watched(Broker):
    """A broker that tells the long turns of its loop."""

    def _program(self) -> Sequence[str]:
        return (sys.executable, "-m", "bench.turns", str(_LONG_TURN_MS), "serve")


class _World:
    """The broker, and how it is reached."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        self.tls = ssl.create_default_context(cafile=str(directory / "authority.pem"))

    def client(self, protocol: str, *, inside: bool = True) -> WireClient:
        host, _, port = self.broker.listener(protocol).rpartition(":")
        return WireClient(_At(host, int(port)), tls=self.tls if inside and protocol.endswith("SSL") else None)

    def rss_mib(self) -> dict[str, int]:
        """What the broker has in memory now, and the most that it ever had."""
        status = Path(f"/proc/{self.broker.pid}/status").read_text().splitlines()
        found = dict(line.split(":") for line in status)
        return {"now": int(found["VmRSS"].split()[0]) >> 10, "peak": int(found["VmHWM"].split()[0]) >> 10}


class _At:
    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port


async def _fuzz(world: _World, until: float, rng: random.Random, done: Counter[str]) -> None:
    """One connection after the other, until `until` (time.monotonic)."""
    while time.monotonic() < until:
        protocol, known = rng.choice(four_listeners.PROTOCOLS), rng.random() < 0.5
        try:
            async with world.client(protocol, inside=known or rng.random() < 0.7) as client:
                if known and protocol.startswith("SASL"):
                    await say_who(client)
                for _ in range(rng.choice((1, 1, 3, 10))):
                    await client.send_bytes(anything(rng))
                    done[f"{protocol} {'after' if known else 'before'} authentication"] += 1
                await asyncio.wait_for(client.is_closed(), _PATIENCE_S)
        except TimeoutError:
            continue
        except (OSError, asyncio.IncompleteReadError):  # closed, before it has read all or said anything
            continue


def _canary(world: _World, seconds: float) -> dict[str, Any]:
    """Write a record every 20 ms for so long, in a process of its own. Milliseconds, by protocol."""
    configs = {
        each: {**four_listeners.client(world.directory, each, world.broker.listener(each)), "linger.ms": "0"}
        for each in _CANARIES
    }
    command = [sys.executable, "-m", "bench.fuzz_canary", str(seconds)]
    done = subprocess.run(command, input=json.dumps(configs), stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def _half_open(world: _World, count: int, seconds: float) -> dict[str, Any]:
    """Hold so many handshakes of which the client says only a part, and have the canary served meanwhile."""
    said = hello(world.tls)
    held: list[asyncio.StreamWriter] = []
    for n in range(count):
        host, _, port = world.broker.listener(("SSL", "SASL_SSL")[n % 2]).rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(said[: (0, 7, -1, None)[n // 2 % 4]])
        held.append(writer)
    found = {"handshakes": count, "canary_ms": await asyncio.to_thread(_canary, world, seconds), **world.rss_mib()}
    for writer in held:
        writer.transport.abort()
    return found


async def _run(world: _World, seconds: float, handshakes: int, seed: int) -> dict[str, Any]:
    alone = max(5.0, min(seconds / 4, 60.0))
    before = world.rss_mib()
    without = await asyncio.to_thread(_canary, world, alone)
    done: Counter[str] = Counter()
    until = time.monotonic() + seconds
    fuzzers = [_fuzz(world, until, random.Random(seed + n), done) for n in range(_AT_ONCE)]
    with_fuzz, *_ = await asyncio.gather(asyncio.to_thread(_canary, world, seconds), *fuzzers)
    after = world.rss_mib()
    # beyond the time that handshakes have, those of the fuzz are gone
    half_open = await _half_open(world, handshakes, min(alone, 25.0)) if handshakes else None
    async with world.client("SASL_SSL") as last:
        await say_who(last)
        answers = bool(await last.ask_api_versions())
    return {
        "seconds": seconds,
        "seed": seed,
        "sent": dict(sorted(done.items())),
        "sent_in_all": done.total(),
        "canary_ms_without": without,
        "canary_ms_with": with_fuzz,
        "p99_times": {each: round(with_fuzz[each]["p99"] / without[each]["p99"], 2) for each in _CANARIES},
        "broker_mib": {"before": before["now"], "after": after["now"], "peak": world.rss_mib()["peak"]},
        "half_open": half_open,
        "answers_at_the_end": answers,
    }


async def _run_watched(world: _World, seconds: float, seed: int) -> int:
    """Send anything for so long; how often something was sent."""
    done: Counter[str] = Counter()
    until = time.monotonic() + seconds
    await asyncio.gather(*(_fuzz(world, until, random.Random(seed + n), done) for n in range(_AT_ONCE)))
    async with world.client("SASL_SSL") as last:
        await say_who(last)
        assert await last.ask_api_versions()
    return done.total()


def turns_of(lines: Sequence[str]) -> list[tuple[int, str]]:
    """The long turns of the loop that a broker has told: milliseconds of CPU and whose, longest first."""
    found = (_TURN.search(line) for line in lines)
    return sorted(((int(each[1]), each[2]) for each in found if each and _UNSERVED not in each[2]), reverse=True)


def faults_of(lines: Sequence[str]) -> list[str]:
    """Lines of the broker's log that speak of a fault inside it."""
    return [line[:300] for line in lines if " ERROR " in line or " CRITICAL " in line or line.startswith("Traceback")]


def _on(kind: type[Broker], act: Callable[[_World], Coroutine[Any, Any, T]]) -> tuple[T, list[str]]:
    """What `act` returns on a broker of its own, and the lines of this broker's log."""
    with tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as name:
        directory = Path(name)
        os.environ["OTTLA_BROKER_LOGS"] = name
        four_listeners.make_certificates(directory)
        with kind(four_listeners.settings(directory)) as broker:
            broker.create_topics("canary", "t")
            done = asyncio.run(act(_World(broker, directory)))
        (log,) = directory.glob("broker-*.log")
        return done, log.read_text(errors="replace").splitlines()


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print what was seen; the exit code."""
    parser = argparse.ArgumentParser(description="Random frames on a broker, while a canary is served.")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--handshakes", type=int, default=2_000, help="half-open TLS handshakes at the end")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args(argv)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each write to a connection that is closed
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * options.handshakes + 1_000
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    seconds, seed = options.hours * 3600, options.seed
    seen, lines = _on(Broker, lambda world: _run(world, seconds, options.handshakes, seed))
    sent, watched = _on(_Watched, lambda world: _run_watched(world, seconds / 6, seed + _AT_ONCE))
    turns = turns_of(watched)
    seen["turns"] = {"sent": sent, "long": len(turns), "longest": turns[:_TURNS_TOLD]}
    seen["faults"] = faults_of(lines) + faults_of(watched)
    print(json.dumps(seen, indent=2))
    memory = seen["broker_mib"]
    is_bounded = memory["peak"] - memory["before"] <= _ALLOWED_MIB
    is_short = not turns or turns[0][0] < _TOO_LONG_TURN_MS
    return 0 if seen["answers_at_the_end"] and is_bounded and is_short and not seen["faults"] else 1


if __name__ == "__main__":
    sys.exit(main())
