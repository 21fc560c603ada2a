"""`compression.type` of topics: what clients send is stored in the topic's compression, with nothing else changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla import Admin, AlterConfig, ConfigResource, NewTopic, Producer, ResourceType
from ottla.client.errors import RecordTooLargeError
from ottla.testing import Broker
from tests.broker.compressing import SOURCES, TARGETS, stored, written
from tests.client.journeys import PATIENCE_S, read_all


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.parametrize("target", TARGETS)
def test_batches_are_stored_in_the_topics_compression(broker: Broker, target: str) -> None:
    found = stored(broker.port, written(broker.bootstrap_servers, target))
    data = [batch for batch in found if not batch.is_control]
    if target == "producer":
        assert [batch.compression.lower() for batch in data] == [each for each in SOURCES for _ in range(2)] + ["none"]
    else:
        assert {batch.compression.lower() for batch in data} == {target.replace("uncompressed", "none")}
    assert [batch.values[0] for batch in data] == [b"0 " * 10, b"0 " * 50_000] * 5 + [b"in a transaction"]
    assert [batch.base_sequence for batch in data] == [0, 3] * 5 + [0]
    assert [batch.is_transactional for batch in found[-2:]] == [True, True]
    assert [batch.base_offset for batch in found] == [*range(0, 30, 3), 30, 31]


def test_the_brokers_setting_is_the_topics_default_and_may_be_changed_for_a_topic(broker: Broker) -> None:
    with Broker({"compression.type": "zstd"}) as compressing:
        servers = {"bootstrap.servers": compressing.bootstrap_servers}
        with Producer(servers) as producer, Admin(servers) as admin:
            producer.send("t", b"zstd" * 100).result(PATIENCE_S)
            resource = ConfigResource(ResourceType.TOPIC, "t")
            assert admin.describe_configs([resource])[resource]["compression.type"].value == "zstd"
            admin.incremental_alter_configs({resource: [AlterConfig("compression.type", "gzip")]})
            producer.send("t", b"gzip" * 100).result(PATIENCE_S)
        assert [batch.compression for batch in stored(compressing.port, "t")] == ["ZSTD", "GZIP"]
        assert len(read_all(compressing.bootstrap_servers, "t")) == 2


def test_a_batch_that_becomes_too_large_is_refused(broker: Broker) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    with Admin(servers) as admin:
        admin.create_topics(
            [NewTopic("large", 1, 1, {"compression.type": "uncompressed", "max.message.bytes": "1000"})]
        )
    with (
        Producer({**servers, "compression.type": "zstd"}) as producer,
        pytest.raises(RecordTooLargeError),
    ):
        producer.send("large", b"x" * 5_000).result(PATIENCE_S)
    assert stored(broker.port, "large") == []
