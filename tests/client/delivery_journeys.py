"""Each delivery guarantee with a crash between its two steps (SPEC O6), gone with `examples/delivery.py`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

from ottla import Admin, TopicPartition
from tests.client.journeys import PATIENCE_S, fresh, make_topic, read_all
from tests.house.tree import ROOT
from tests.recording.current import Producer

_COUNT, _CRASH_AT = 8, 3


def _run(servers: str, guarantee: str, source: str, target: str, *more: str) -> int:
    command = [sys.executable, str(ROOT / "examples" / "delivery.py"), guarantee]
    where = ["--bootstrap", servers, "--input", source, "--output", target]
    done = subprocess.run(
        [*command, *where, *more], capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def _copied(servers: str, guarantee: str) -> list[int]:
    """What is in the output after a crash between the two steps of one record, and a second run."""
    source, target = make_topic(servers, prefix="o6-in"), make_topic(servers, prefix=fresh("o6-out"))
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(_COUNT):
            producer.send(source, b"%d" % number)
    crashed = _run(servers, guarantee, source, target, "--crash-at", str(_CRASH_AT))
    assert crashed == -signal.SIGKILL
    assert _run(servers, guarantee, source, target) == 0
    with Admin({"bootstrap.servers": servers}) as admin:
        committed = admin.list_group_offsets(f"{target}-{guarantee}")
        assert committed[TopicPartition(source, 0)].offset == _COUNT
    return [int(record.value) for record in read_all(servers, target)]


def o6_at_most_once_loses_the_record_of_the_crash(servers: str) -> None:
    assert _copied(servers, "at-most-once") == [n for n in range(_COUNT) if n != _CRASH_AT]


def o6_at_least_once_repeats_the_record_of_the_crash(servers: str) -> None:
    assert _copied(servers, "at-least-once") == sorted([*range(_COUNT), _CRASH_AT])


def o6_exactly_once_neither_loses_nor_repeats_it(servers: str) -> None:
    assert _copied(servers, "exactly-once") == list(range(_COUNT))


ALL: list[Callable[[str], None]] = [
    o6_at_most_once_loses_the_record_of_the_crash,
    o6_at_least_once_repeats_the_record_of_the_crash,
    o6_exactly_once_neither_loses_nor_repeats_it,
]
