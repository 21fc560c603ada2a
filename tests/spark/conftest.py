"""Fixtures of the Spark room: names of one's own on a shared broker, ours or (in `make interop`) Apache Kafka."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.base.errors import ConfigError
from ottla.spark import link
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
def _links_end_with_their_module() -> Iterator[None]:
    """This process's links end before the broker does: they would look for it as long as the process runs."""
    yield
    for (process, *_), each in link._LINKS.items():
        if process == os.getpid():
            each.shut()


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
