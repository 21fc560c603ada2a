"""Fixtures of the Spark room: names of one's own on a shared broker, ours or (in `make interop`) Apache Kafka."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.base.errors import ConfigError
from ottla.spark import link, slot_writer
from ottla.spark.run import find_java
from ottla.testing import Broker
from tests.interop.apache import ApacheKafka, in_ci
from tests.interop.conftest import apache_jars as apache_jars
from tests.interop.conftest import apache_kafka as apache_kafka
from tests.spark.brokers import APACHE_KAFKA

if TYPE_CHECKING:
    from tests.spark.sink_world import SinkWorld


def need_java() -> str:
    """The `java` that Spark takes. A machine without it skips, and CI fails."""
    try:
        return find_java(os.environ)
    except ConfigError as missing:
        (pytest.fail if in_ci() else pytest.skip)(str(missing))


@pytest.fixture(scope="session")
def java() -> str:
    """See `need_java`."""
    return need_java()


@pytest.fixture(scope="session")
def fresh_name() -> Callable[[str], str]:
    """Makes names that no other test has."""
    numbers = itertools.count()
    return lambda prefix: f"{prefix}-{os.getpid()}-{next(numbers)}"


@pytest.fixture(scope="module", autouse=True)
def _clients_end_with_their_module() -> Iterator[None]:
    """This process's links and producers end before the broker: else they look for it as long as the process runs."""
    yield
    for key in _of_this_process(link._LINKS):
        link._LINKS.pop(key).shut()
    for key in _of_this_process(slot_writer._PLAIN):
        slot_writer._PLAIN.pop(key).close()


def _of_this_process(kept: Mapping[tuple[Any, ...], object]) -> list[tuple[Any, ...]]:
    """Some are another one's, from which this one was forked."""
    return [key for key in kept if key[0] == os.getpid()]


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where the tests' broker is: ours, unless the test is marked `on_either_broker`."""
    if getattr(request, "param", None) == APACHE_KAFKA:
        theirs: ApacheKafka = request.getfixturevalue("apache_kafka")
        return theirs.bootstrap
    ours: Broker = request.getfixturevalue("ottla_broker")
    return ours.bootstrap_servers


@pytest.fixture
def world(bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path) -> "SinkWorld":
    """A sink of the test's own."""
    from tests.spark.sink_world import SinkWorld

    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    return SinkWorld.create(bootstrap, fresh_name("words"), tmp_path / "checkpoint")
