"""Topic configuration keys, and which broker key each falls back on (DescribeConfigs' synonyms)."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.config import ConfigKey, ConfigSet, ConfigType, Standing, Validator, between, one_of
from ottla.base.errors import ConfigError
from ottla.broker.config import BrokerConfig
from ottla.broker.config_keys import (
    BOOL,
    BROKER_CONFIG,
    CLEANUP_POLICY,
    CODECS,
    INT,
    LIST,
    LONG,
    SMALLEST_SEGMENT_BYTES,
    STR,
    ZSTD_LEVEL,
    gzip_level,
)

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000


class TopicKey(NamedTuple):
    """A topic's key and the broker keys it defaults to, first match first, each with its factor to this key's unit."""

    key: ConfigKey
    synonyms: tuple[tuple[str, int], ...] = ()


def _key(name: str, kind: ConfigType, doc: str, *synonyms: str, check: Validator | None = None) -> TopicKey:
    """A key with an effect, or one that has as much effect as its broker key."""
    first = BROKER_CONFIG.keys[synonyms[0]]
    units = {"minutes": _MINUTE_MS, "hours": _HOUR_MS}
    factors = tuple((each, units.get(each.rpartition(".")[2], 1)) for each in synonyms)
    default = first.default if first.standing is Standing.DEFAULT_ONLY else None
    return TopicKey(ConfigKey(name, kind, default, doc or first.doc, check, standing=first.standing), factors)


def _alone(
    name: str, kind: ConfigType, default: object, doc: str, check: Validator | None = None, *, only: bool = False
) -> TopicKey:
    """A key that falls back on no broker key and has no effect here."""
    standing = Standing.DEFAULT_ONLY if only else Standing.WITHOUT_EFFECT
    return TopicKey(ConfigKey(name, kind, default, doc, check, standing=standing))


def _replicas(value: object) -> str | None:
    """Accept Kafka's form of a list of replicas: `*`, or `partition:broker` for each."""
    words = value if isinstance(value, tuple) else ()
    good = words == ("*",) or all(_REPLICA.fullmatch(str(word)) for word in words)
    return None if good else "must be * or partition:broker, partition:broker and so on"


_REPLICA = re.compile(r"\d+:\d+", re.ASCII)
_at_least_0, _at_least_1 = between(0), between(1)
_REPLICATION = "One node replicates nothing."
_TIERED = "There is no tiered storage."

_KEYS: Final = (
    _key("cleanup.policy", LIST, "What becomes of old segments.", "log.cleanup.policy", check=CLEANUP_POLICY),
    _key("compression.type", STR, "", "compression.type", check=CODECS),
    _key("compression.gzip.level", INT, "", "compression.gzip.level", check=gzip_level),
    _key("compression.lz4.level", INT, "", "compression.lz4.level", check=between(1, 17)),
    _key("compression.zstd.level", INT, "", "compression.zstd.level", check=ZSTD_LEVEL),
    _key(
        "message.timestamp.type",
        STR,
        "Whose clock stamps records.",
        "log.message.timestamp.type",
        check=one_of("CreateTime", "LogAppendTime"),
    ),
    _key(
        "retention.ms",
        LONG,
        "Age after which a segment goes.",
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
        check=between(-1),
    ),
    _key("segment.ms", LONG, "Age at which a segment is rolled.", "log.roll.ms", "log.roll.hours", check=_at_least_1),
    _key("segment.jitter.ms", LONG, "", "log.roll.jitter.ms", "log.roll.jitter.hours", check=_at_least_0),
    _key("min.cleanable.dirty.ratio", ConfigType.DOUBLE, "", "log.cleaner.min.cleanable.ratio", check=between(0, 1)),
    _key("retention.bytes", LONG, "Bytes above which old segments go.", "log.retention.bytes"),
    _key("segment.bytes", INT, "", "log.segment.bytes", check=between(SMALLEST_SEGMENT_BYTES)),
    _key("segment.index.bytes", INT, "", "log.index.size.max.bytes", check=between(4)),
    _key("index.interval.bytes", INT, "", "log.index.interval.bytes", check=_at_least_0),
    _key("max.message.bytes", INT, "", "message.max.bytes", check=_at_least_0),
    _key("min.insync.replicas", INT, "", "min.insync.replicas", check=_at_least_1),
    _key("delete.retention.ms", LONG, "", "log.cleaner.delete.retention.ms", check=_at_least_0),
    _key("file.delete.delay.ms", LONG, "", "log.segment.delete.delay.ms", check=_at_least_0),
    _key("min.compaction.lag.ms", LONG, "", "log.cleaner.min.compaction.lag.ms", check=_at_least_0),
    _key("max.compaction.lag.ms", LONG, "", "log.cleaner.max.compaction.lag.ms", check=_at_least_1),
    _key("message.timestamp.before.max.ms", LONG, "", "log.message.timestamp.before.max.ms", check=_at_least_0),
    _key("message.timestamp.after.max.ms", LONG, "", "log.message.timestamp.after.max.ms", check=_at_least_0),
    _key("flush.messages", LONG, "", "log.flush.interval.messages", check=_at_least_1),
    _key("flush.ms", LONG, "", "log.flush.interval.ms", "log.flush.scheduler.interval.ms", check=_at_least_0),
    _key("preallocate", BOOL, "", "log.preallocate"),
    _key("unclean.leader.election.enable", BOOL, "", "unclean.leader.election.enable"),
    _key("local.retention.ms", LONG, "", "log.local.retention.ms", check=between(-2)),
    _key("local.retention.bytes", LONG, "", "log.local.retention.bytes", check=between(-2)),
    _alone("remote.storage.enable", BOOL, False, _TIERED, only=True),
    _alone("remote.log.copy.disable", BOOL, False, _TIERED),
    _alone("remote.log.delete.on.disable", BOOL, False, _TIERED),
    _alone("leader.replication.throttled.replicas", LIST, (), _REPLICATION, _replicas),
    _alone("follower.replication.throttled.replicas", LIST, (), _REPLICATION, _replicas),
    TopicKey(ConfigKey("internal.segment.bytes", INT, None, "segment.bytes without its lower limit.", internal=True)),
)

TOPIC_KEYS: Final[Mapping[str, TopicKey]] = {each.key.name: each for each in _KEYS}
TOPIC_CONFIG: Final = ConfigSet.of("topic", (each.key for each in _KEYS))


class TopicConfig:
    """A topic's effective configuration: its own overrides over the broker's settings.

    Raises ConfigError for overrides that are unknown, bad, or in conflict with each other.
    """

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        self._broker = broker
        self._overrides = {name: TOPIC_CONFIG.find(name).parse(text) for name, text in overrides.items()}
        small = self._overrides.get("internal.segment.bytes")
        if small is not None:
            self._overrides["segment.bytes"] = small
        shortest, longest = self.int("min.compaction.lag.ms"), self.int("max.compaction.lag.ms")
        if shortest > longest:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
            )

    def __getitem__(self, name: str) -> object:
        if name in self._overrides:
            return self._overrides[name]
        return default_value(self._broker, name)

    def int(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int), name
        return value

    def float(self, name: str) -> float:
        value = self[name]
        assert isinstance(value, int | float), name
        return value

    def text(self, name: str) -> str:
        value = self[name]
        assert isinstance(value, str), name
        return value


def default_value(broker: BrokerConfig, name: str) -> object:
    """The topic key's value without an override of its own."""
    topic_key = TOPIC_KEYS[name]
    for synonym, factor in topic_key.synonyms:
        value = broker[synonym]
        if value is not None:
            if name == "retention.ms" and isinstance(value, int) and value < 0:
                return -1  # never, in every unit
            return value * factor if isinstance(value, int) and factor != 1 else value
    return topic_key.key.default


def render(value: object) -> str | None:
    """A configuration value as Kafka's DescribeConfigs writes it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(str(each) for each in value)
        case float():
            return _java_double(value)
        case _:
            return str(value)


def _java_double(value: float) -> str:
    """A number as Java writes it: with an exponent below a thousandth and from ten million on."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal

    digits, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
