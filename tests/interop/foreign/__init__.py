"""Clients in other languages: franz-go (Go) and kafkajs (JavaScript), each a program that tests talk with.

Their versions are pinned in `franz/go.mod` and `PACKAGES`. Their own tools fetch them, once, into `.cache`. Where a
tool is missing or too old, or cannot fetch, the test is skipped with the reason, in CI too: neither Go nor node is
needed for anything else.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from ottla import TopicPartition
from ottla.testing import History
from tests.interop import apache
from tests.interop.members import Position

PACKAGES: Final = ("kafkajs@2.2.4", "kafkajs-snappy@1.1.0")
_HERE: Final = Path(__file__).parent
_CACHE: Final = Path(__file__).resolve().parents[3] / ".cache" / "foreign"
#: Where Go is, beside the PATH, after its own way of installation.
_GO_PLACES: Final = os.pathsep.join(("/usr/local/go/bin", "/usr/lib/go/bin"))
_FETCH_S: Final = 180.0
_TALK_S: Final = 240.0

#: What starts a program, up to its arguments.
Program: TypeAlias = tuple[str, ...]


def _version_of(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


@functools.cache
def _why_not(place: Path, command: tuple[str, ...], cwd: Path) -> str:
    """Make `place` by a command that writes its part file or directory; why it cannot, or "". It is tried once."""
    with apache.alone_in_cache():
        if place.exists():
            return ""
        _CACHE.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "GOTOOLCHAIN": "local"}
        try:
            done = subprocess.run(
                command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=_FETCH_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"not within {_FETCH_S:.0f} s"
        part = Path(f"{place}.part")
        if done.returncode != 0 or not part.exists():
            return str(done.stdout + done.stderr)[-400:]
        part.rename(place)
    return ""


def _fetched(place: Path, command: Sequence[str], cwd: Path, what: str) -> Path:
    """`place`, made where it is not there; skips the test if it cannot be."""
    why_not = _why_not(place, tuple(command), cwd)
    if why_not:
        pytest.skip(f"{what} could not be fetched or built: {why_not}")
    return place


@functools.cache
def franz_go() -> Program:
    """franz-go; the program is built once for each version of it."""
    go = shutil.which("go") or shutil.which("go", path=_GO_PLACES)
    if go is None:
        pytest.skip("franz-go needs Go: `go` is not on the PATH")
    source = _HERE / "franz"
    version = _version_of(*((source / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")))
    place = _CACHE / f"franz-{version}"
    return (str(_fetched(place, [go, "build", "-o", f"{place}.part", "."], source, "franz-go")),)


@functools.cache
def kafkajs() -> Program:
    """kafkajs."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("kafkajs needs node and npm: they are not on the PATH")
    place = _CACHE / f"kafkajs-{_version_of(*(each.encode() for each in PACKAGES))}"
    flags = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--prefix", f"{place}.part"]
    packages = _fetched(place, [npm, "install", *flags, *PACKAGES], _HERE, "kafkajs") / "node_modules"
    return (_environment(), f"NODE_PATH={packages}", node, str(_HERE / "kafkajs" / "talk.js"))


def _environment() -> str:
    found = shutil.which("env")
    if found is None:
        pytest.skip("there is no `env` on the PATH")
    return found


CLIENTS: Final[Mapping[str, Callable[[], Program]]] = {"franz-go": franz_go, "kafkajs": kafkajs}


def ask(program: Program, *arguments: str, environment: Mapping[str, str] | None = None) -> Any:
    """What a program answers to broker, name, command and perhaps one thing more. AssertionError if it fails."""
    every = {**os.environ, **(environment or {})}
    done = subprocess.run(
        [*program, *arguments], env=every, capture_output=True, text=True, timeout=_TALK_S, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout)


def start(program: Program, *arguments: str) -> subprocess.Popen[str]:
    """A program that is talked with by lines."""
    return subprocess.Popen([*program, *arguments], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class Foreign:
    """One of these clients as a member of a group, as in `members.py`. Topic and group have one name."""

    def __init__(
        self, program: Program, bootstrap: str, topic: str, group: str, history: History, strategy: str = "range"
    ) -> None:
        del history  # they have no recorder: what was read is judged by the test
        assert topic == group
        self._topic, self._has = topic, frozenset[TopicPartition]()
        self._process = start(program, bootstrap, topic, "member", strategy)

    async def poll(self) -> list[Position]:
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        assert line, "the member has ended"
        return self._told(line)

    def _told(self, line: str) -> list[Position]:
        match line.split():
            case ["HAS", *numbers]:
                self._has = frozenset(TopicPartition(self._topic, int(number)) for number in numbers)
            case ["GOT", position]:
                partition, _, offset = position.partition(":")
                return [(int(partition), int(offset))]
        return []

    async def owned(self) -> frozenset[TopicPartition]:
        return self._has

    async def close(self) -> None:
        await asyncio.to_thread(self._process.communicate, "\n", _TALK_S)
