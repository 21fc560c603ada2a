"""Flame graphs of what the figures measure, by py-spy: `pip install py-spy`, then `python -m bench.flames docs/flames`.

One of the broker while librdkafka writes small batches, one while it commits transactions of ten records, and one of a
client that reads columns from our broker. The stacks are Python's, of the thread that holds Python's lock: what
compiled code takes is told as its caller's, and calls of the system that let go of the lock are not in it (`perf` tells
these).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Final

from bench.broker_figures import new_topic, produce, transactions
from bench.clients.ottla import columns
from bench.clients.shape import Shape
from bench.peers import OttlaPeer

_RATE: Final = 500
#: How much is done while a graph is drawn: some ten seconds of it.
_SMALL, _TRANSACTIONS, _COLUMNS = 1_500_000, 10.0, Shape(4_000_000, 100, 1, "none")
_ROUNDS: Final = 15
#: py-spy's title is its own command line, with its paths.
_TITLE = re.compile(r'(<text id="title"[^>]*>)[^<]*')


def _small(bootstrap: str) -> None:
    produce(bootstrap, new_topic(bootstrap), _SMALL, 100, **{"linger.ms": 0, "batch.num.messages": 10})


def _transactions(bootstrap: str) -> None:
    transactions(bootstrap, _TRANSACTIONS)


def _columns(bootstrap: str) -> None:
    for _ in range(_ROUNDS):
        columns(bootstrap, _COLUMNS)


#: By file name: the work, whose process is looked at, and the title.
_GRAPHS: dict[str, tuple[Callable[[str], None], bool, str]] = {
    "broker-small-batches": (_small, True, "The broker: librdkafka writes batches of ten records"),
    "broker-transactions": (_transactions, True, "The broker: librdkafka commits transactions of ten records"),
    "client-columns": (_columns, False, "A client reads columns (poll_arrow), records of 100 bytes"),
}


@contextmanager
def _drawn(pid: int, file: Path, title: str) -> Iterator[None]:
    command = ["py-spy", "record", "--output", str(file), "--pid", str(pid), "--rate", str(_RATE), "--gil"]
    spy = subprocess.Popen([*command, "--duration", "600"], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        spy.send_signal(signal.SIGINT)  # it writes what it has then
        spy.wait()
    file.write_text(_TITLE.sub(rf"\g<1>{title}", file.read_text(encoding="utf-8")), encoding="utf-8")


def _draw(directory: Path, bootstrap: str, broker: int) -> None:
    for name, (work, is_of_broker, title) in _GRAPHS.items():
        print(f"{name}: {title}", flush=True)
        _COLUMNS.filled(bootstrap)
        with _drawn(broker if is_of_broker else os.getpid(), directory / f"{name}.svg", title):
            thread = threading.Thread(target=work, args=(bootstrap,))
            thread.start()
            thread.join()


def main() -> None:
    """Draw all."""
    if len(sys.argv) != 2 or which("py-spy") is None:
        sys.exit("say where to, with py-spy installed: pip install py-spy; python -m bench.flames docs/flames")
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ottla-flames-") as scratch:
        ours = OttlaPeer(Path(scratch) / "ottla", {})
        ours.start_and_wait()
        try:
            _draw(directory, ours.bootstrap, ours.pid)
        finally:
            ours.stop()


if __name__ == "__main__":
    main()
