"""SPEC S2 and S3 on Apache Kafka: every test of the sink on our broker, on theirs."""

from __future__ import annotations

import pytest

from tests.interop.apache import ApacheKafka
from tests.spark.conftest import fresh_name, world  # noqa: F401
from tests.spark.test_ledger_on_broker import (  # noqa: F401
    test_s2_a_decision_is_found_whatever_high_watermark_a_new_leader_answers,
)
from tests.spark.test_sink_on_broker import *  # noqa: F403

pytestmark = pytest.mark.interop


@pytest.fixture
def bootstrap(apache_kafka: ApacheKafka) -> str:
    """Apache Kafka instead of our broker."""
    return apache_kafka.bootstrap
