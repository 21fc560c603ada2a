"""`compression.type` of topics: Apache Kafka stores the same batches as our broker, for every codec in and out."""

from __future__ import annotations

import pytest

from ottla.testing import Broker
from tests.broker.compressing import TARGETS, stored, written
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("target", TARGETS)
def test_both_brokers_store_the_same_batches(target: str, apache_kafka: ApacheKafka, our_broker: Broker) -> None:
    ours = stored(our_broker.port, written(our_broker.bootstrap_servers, target))
    assert ours == stored(apache_kafka.port, written(apache_kafka.bootstrap, target))
