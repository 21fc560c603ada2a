"""Fixtures of the foreign peers. A missing Java or Maven skips with the reason, and fails when CI=true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop import apache


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
def apache_kafka(apache_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[apache.ApacheKafka]:
    """One node of Apache Kafka shared by the whole session: use topic, group and transactional ids of your own."""
    with apache.ApacheKafka(tmp_path_factory.mktemp("apache-kafka")) as node:
        yield node
