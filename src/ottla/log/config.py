"""The settings of one partition's log: Kafka's topic keys, typed."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from ottla.base.errors import ConfigError
from ottla.wire.compression import Compression

_LONG_MAX: Final = 2**63 - 1
_DAY_MS: Final = 86_400_000
#: Words of `compression.type`.
_COMPRESSIONS: Final[dict[str, Compression | None]] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    **{each.name.lower(): each for each in Compression if each is not Compression.NONE},
}
_HAVE_LEVELS: Final[dict[Compression | None, str]] = {
    Compression.GZIP: "compression.gzip.level",
    Compression.ZSTD: "compression.zstd.level",
}


class TimestampType(Enum):
    """Who sets a record's timestamp: its producer or the broker (`message.timestamp.type`)."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class TopicSettings(Protocol):
    """Anything that has a value for every topic key by Kafka's name (a dict, the broker's TopicConfig)."""

    def __getitem__(self, name: str, /) -> object: ...


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's defaults unless told otherwise. Sizes in bytes, times in milliseconds, -1 = without limit."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 7 * _DAY_MS
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4_096
    max_message_bytes: int = 1_048_588
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    #: The words of `cleanup.policy`: delete, compact, both, or neither.
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _LONG_MAX
    delete_retention_ms: int = _DAY_MS
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = _LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    #: So many unsynced records are synced before they are acknowledged; or after so long, whatever they are.
    flush_messages: int = _LONG_MAX
    flush_ms: int = _LONG_MAX
    #: `compression.type`: what clients' batches are compressed with, whatever they came with; None: they stay.
    compression: Compression | None = None
    #: The codec's level; None for its default.
    compression_level: int | None = None
    #: `producer.id.expiration.ms` of the broker.
    producer_id_expiration_ms: int = _DAY_MS
    #: `transaction.partition.verification.enable` of the broker (KIP-890).
    transaction_verification: bool = True

    @classmethod
    def of(
        cls,
        settings: TopicSettings,
        *,
        producer_id_expiration_ms: int = _DAY_MS,
        transaction_verification: bool = True,
    ) -> "LogConfig":
        """Read the topic keys that concern the log; ConfigError when one has the wrong type."""
        policy = frozenset(_words(settings, "cleanup.policy"))
        compression = _COMPRESSIONS[str(settings["compression.type"])]
        segment_ms, longest_ms = _int(settings, "segment.ms"), _int(settings, "max.compaction.lag.ms")
        return cls(
            segment_bytes=_int(settings, "segment.bytes"),
            # A record is cleaned in a closed segment only (KIP-354).
            segment_ms=min(segment_ms, longest_ms) if "compact" in policy and longest_ms > 0 else segment_ms,
            segment_index_bytes=_int(settings, "segment.index.bytes"),
            index_interval_bytes=_int(settings, "index.interval.bytes"),
            max_message_bytes=_int(settings, "max.message.bytes"),
            retention_ms=_int(settings, "retention.ms"),
            retention_bytes=_int(settings, "retention.bytes"),
            cleanup_policy=policy,
            min_cleanable_dirty_ratio=_float(settings, "min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=_int(settings, "min.compaction.lag.ms"),
            max_compaction_lag_ms=longest_ms,
            delete_retention_ms=_int(settings, "delete.retention.ms"),
            message_timestamp_type=TimestampType(settings["message.timestamp.type"]),
            message_timestamp_before_max_ms=_int(settings, "message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=_int(settings, "message.timestamp.after.max.ms"),
            flush_messages=_int(settings, "flush.messages"),
            flush_ms=_int(settings, "flush.ms"),
            compression=compression,
            compression_level=None if compression not in _HAVE_LEVELS else _int(settings, _HAVE_LEVELS[compression]),
            producer_id_expiration_ms=producer_id_expiration_ms,
            transaction_verification=transaction_verification,
        )

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def stamps(self) -> bool:
        """Whether records get the time at which they are appended."""
        return self.message_timestamp_type is TimestampType.LOG_APPEND_TIME

    @property
    def compacts(self) -> bool:
        """Whether the cleaner keeps the last record of each key; records without a key are refused."""
        return "compact" in self.cleanup_policy


def _int(settings: TopicSettings, name: str) -> int:
    value = settings[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected a whole number")
    return value


def _float(settings: TopicSettings, name: str) -> float:
    value = settings[name]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected a number")
    return value


def _words(settings: TopicSettings, name: str) -> list[str]:
    value = settings[name]
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple):
        raise ConfigError(f"Invalid value {value!r} for configuration {name}: expected names separated by commas")
    return [str(word).strip() for word in words if str(word).strip()]
