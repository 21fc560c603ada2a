"""A log's settings from Kafka's topic keys."""

import pytest

from ottla.base.errors import ConfigError
from ottla.log.config import LogConfig, TimestampType
from ottla.wire.compression import Compression

_KAFKA = {
    "segment.bytes": 1_073_741_824,
    "segment.ms": 604_800_000,
    "segment.index.bytes": 10_485_760,
    "index.interval.bytes": 4_096,
    "max.message.bytes": 1_048_588,
    "retention.ms": 604_800_000,
    "retention.bytes": -1,
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": 9_223_372_036_854_775_807,
    "message.timestamp.after.max.ms": 3_600_000,
    "flush.messages": 9_223_372_036_854_775_807,
    "flush.ms": 9_223_372_036_854_775_807,
    "min.cleanable.dirty.ratio": 0.5,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": 9_223_372_036_854_775_807,
    "delete.retention.ms": 86_400_000,
    "compression.type": "producer",
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.zstd.level": 3,
}


def test_apache_kafkas_defaults_are_ours() -> None:
    assert LogConfig.of(_KAFKA) == LogConfig()


def test_settings_are_taken_over() -> None:
    settings = {**_KAFKA, "cleanup.policy": "compact, delete", "message.timestamp.type": "LogAppendTime"}
    settings |= {"flush.messages": 1, "flush.ms": 7, "compression.type": "zstd"}
    config = LogConfig.of(settings, producer_id_expiration_ms=5, transaction_verification=False)
    assert (config.compacts, config.deletes) == (True, True)
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (config.flush_messages, config.flush_ms) == (1, 7)
    assert (config.compression, config.compression_level) == (Compression.ZSTD, 3)
    assert (config.producer_id_expiration_ms, config.transaction_verification) == (5, False)


@pytest.mark.parametrize(("name", "value"), [("segment.bytes", "many"), ("cleanup.policy", 7), ("retention.ms", True)])
def test_a_value_of_the_wrong_type_names_its_key(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        LogConfig.of({**_KAFKA, name: value})
