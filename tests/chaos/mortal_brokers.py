"""Brokers of a test's own that it kills: ours, or Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop.nodes import node_of


class Mortal(NamedTuple):
    """A broker that can die."""

    bootstrap: str
    kill_and_start: Callable[[], object]


@contextmanager
def mortal(kind: str, folder: Path, config: Mapping[str, str] | None = None) -> Iterator[Mortal]:
    """A broker of `kind`, "ottla" or "apache", with these settings; its files are below `folder`."""
    with node_of(kind, folder / "broker", config or {}) as node:

        def again() -> None:
            node.kill()
            node.start()

        yield Mortal(node.bootstrap, again)


def need_jars(kind: str, request: pytest.FixtureRequest) -> None:
    """Skip, or fail in CI, where Apache Kafka is asked for and cannot be had."""
    if kind == "apache":
        request.getfixturevalue("apache_jars")
