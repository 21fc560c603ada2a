"""A broker that a test ends, in order or by kill -9, and starts again: ours, or Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.testing import Broker
from tests.interop.apache import ApacheKafka


class Node(NamedTuple):
    """A broker that can be ended and started again on the same data."""

    name: str
    bootstrap: str
    stop: Callable[[], object]
    kill: Callable[[], object]
    start: Callable[[], object]


@contextmanager
def node_of(name: str, directory: Path, config: Mapping[str, str]) -> Iterator[Node]:
    """A node of `name`, "ottla" or "apache", with these settings; its files are below `directory`."""
    if name == "ottla":
        with Broker(config, data_dir=directory) as ours:
            yield Node(name, ours.bootstrap_servers, ours.stop, ours.kill, ours.restart)
    else:
        with ApacheKafka(directory, config) as theirs:
            yield Node(name, theirs.bootstrap, theirs.stop, theirs.kill9, theirs.start)
