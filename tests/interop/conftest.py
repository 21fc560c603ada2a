"""Fixtures of the foreign peers. A missing Java or Maven skips with the reason, and fails when CI=true.

Tests of foreign clients ask for `any_broker`: they run against ours, and (marked slow) against Apache Kafka, so that
the tests themselves are known to say what Kafka does.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop import apache

if TYPE_CHECKING:
    from ottla.testing import Broker

ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture(scope="session")
def apache_jars() -> str:
    """Directory of Apache Kafka's jars."""
    try:
        return str(apache.jars())
    except apache.MissingPeerError as missing:
        if apache.in_ci():
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def program_jars(apache_jars: str) -> str:
    """Directory of the jars of Kafka Streams, Connect and MirrorMaker 2."""
    try:
        return str(apache.program_jars())
    except apache.MissingPeerError as missing:
        if apache.in_ci():
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def apache_kafka(apache_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[apache.ApacheKafka]:
    """One node of Apache Kafka shared by the whole session: use topic, group and transactional ids of your own."""
    with apache.ApacheKafka(tmp_path_factory.mktemp("apache-kafka")) as node:
        yield node


@pytest.fixture(scope="session")
def our_broker() -> Iterator[Broker]:
    """Our broker in a process of its own, as a user would run it; quick to rebalance."""
    from ottla.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.slow)], scope="session")
def any_broker(request: pytest.FixtureRequest) -> str:
    """The bootstrap address of our broker, then of Apache Kafka."""
    if request.param == "ottla":
        ours: Broker = request.getfixturevalue("our_broker")
        return ours.bootstrap_servers
    theirs: apache.ApacheKafka = request.getfixturevalue("apache_kafka")
    return theirs.bootstrap


@pytest.fixture(scope="session")
def fresh() -> Callable[[str], str]:
    """Makes names that nobody has used on the shared brokers: `fresh("topic")`."""
    numbers = itertools.count()
    return lambda stem: f"{stem}-{os.getpid()}-{next(numbers)}"


@pytest.fixture(scope="package")
def spark(apache_jars: str) -> Iterator[Any]:
    """A session that has both connectors, Spark's own and ours; one for all files of this package."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": ",".join(map(str, apache.spark_connector_jars())),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.execution.arrow.maxBytesPerBatch": "8388608",
        # what transformWithState needs; the other state is kept as without it
        "spark.sql.streaming.stateStore.providerClass": ROCKS_DB,
    }
    with pytest.MonkeyPatch.context() as environment:  # Spark's workers are to find what is installed here
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            environment.setenv(name, sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        session.sparkContext.setLogLevel("OFF")  # queries that are to fail tell it to the test
        yield session
        session.stop()
