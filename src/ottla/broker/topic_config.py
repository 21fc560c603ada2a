"""Topic configuration keys, and which broker key each falls back on (DescribeConfigs' synonyms)."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ottla.base.config import ConfigKey, ConfigSet, ConfigType, between, one_of
from ottla.broker.config import BrokerConfig

_LONG_MAX: Final = 2**63 - 1


class TopicKey(NamedTuple):
    """A topic's key and the broker keys it defaults to, first match first, each with its factor to this key's unit."""

    key: ConfigKey
    synonyms: tuple[tuple[str, int], ...] = ()


def _key(name: str, kind: ConfigType, doc: str, *synonyms: str, low: float | None = None) -> TopicKey:
    validator = None if low is None else between(low)
    return TopicKey(ConfigKey(name, kind, None, doc, validator), tuple((each, 1) for each in synonyms))


_INT, _LONG, _BOOL = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN

_KEYS: Final = (
    TopicKey(
        ConfigKey(
            "cleanup.policy",
            ConfigType.STRING,
            None,
            "What becomes of old segments.",
            one_of("delete", "compact", "delete,compact", "compact,delete"),
        ),
        (("log.cleanup.policy", 1),),
    ),
    TopicKey(
        ConfigKey(
            "compression.type",
            ConfigType.STRING,
            None,
            "Accepted; batches stay as the producer compressed them.",
            one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        ),
        (("compression.type", 1),),
    ),
    TopicKey(
        ConfigKey(
            "message.timestamp.type",
            ConfigType.STRING,
            None,
            "Whose clock stamps records.",
            one_of("CreateTime", "LogAppendTime"),
        ),
        (("log.message.timestamp.type", 1),),
    ),
    TopicKey(
        ConfigKey("retention.ms", _LONG, None, "Age after which a segment goes.", between(-1)),
        (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    ),
    TopicKey(
        ConfigKey("segment.ms", _LONG, None, "Age at which a segment is rolled.", between(1)),
        (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    ),
    TopicKey(
        ConfigKey("segment.jitter.ms", _LONG, None, "Accepted; segments roll without jitter.", between(0)),
        (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    ),
    TopicKey(
        ConfigKey("min.cleanable.dirty.ratio", ConfigType.DOUBLE, None, "Dirty share to compact.", between(0, 1)),
        (("log.cleaner.min.cleanable.ratio", 1),),
    ),
    _key("retention.bytes", _LONG, "Bytes above which old segments go.", "log.retention.bytes", low=-1),
    _key("segment.bytes", _INT, "Size at which a segment is rolled.", "log.segment.bytes", low=14),
    _key("segment.index.bytes", _INT, "Largest offset index.", "log.index.size.max.bytes", low=4),
    _key("index.interval.bytes", _INT, "Log bytes between index entries.", "log.index.interval.bytes", low=0),
    _key("max.message.bytes", _INT, "Largest record batch.", "message.max.bytes", low=0),
    _key("min.insync.replicas", _INT, "Replicas that must acknowledge.", "min.insync.replicas", low=1),
    _key("delete.retention.ms", _LONG, "How long tombstones stay.", "log.cleaner.delete.retention.ms", low=0),
    _key("file.delete.delay.ms", _LONG, "Wait before files go.", "log.segment.delete.delay.ms", low=0),
    _key("min.compaction.lag.ms", _LONG, "Age before compaction.", "log.cleaner.min.compaction.lag.ms", low=0),
    _key("max.compaction.lag.ms", _LONG, "Age that forces it.", "log.cleaner.max.compaction.lag.ms", low=1),
    _key("message.timestamp.before.max.ms", _LONG, "Oldest timestamp.", "log.message.timestamp.before.max.ms", low=0),
    _key("message.timestamp.after.max.ms", _LONG, "Newest timestamp.", "log.message.timestamp.after.max.ms", low=0),
    _key("flush.messages", _LONG, "Accepted; the page cache is trusted.", "log.flush.interval.messages", low=1),
    _key("flush.ms", _LONG, "Accepted; the page cache is trusted.", "log.flush.interval.ms", low=0),
    _key("preallocate", _BOOL, "Accepted; files grow as they are written.", "log.preallocate"),
    _key("unclean.leader.election.enable", _BOOL, "Without effect.", "unclean.leader.election.enable"),
    _key("leader.replication.throttled.replicas", ConfigType.LIST, "Accepted; one node replicates nothing."),
    _key("follower.replication.throttled.replicas", ConfigType.LIST, "Accepted; one node replicates nothing."),
)

TOPIC_KEYS: Final[Mapping[str, TopicKey]] = {each.key.name: each for each in _KEYS}
TOPIC_CONFIG: Final = ConfigSet.of("topic", (each.key for each in _KEYS))

#: What a key is when neither topic nor broker says anything (the broker key's own default is None).
_FALLBACK: Final[Mapping[str, object]] = {
    "flush.ms": _LONG_MAX,
    "leader.replication.throttled.replicas": (),
    "follower.replication.throttled.replicas": (),
}


class TopicConfig:
    """A topic's effective configuration: its own overrides over the broker's settings."""

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        self._broker = broker
        self._overrides = {name: TOPIC_CONFIG.find(name).parse(text) for name, text in overrides.items()}

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
    for synonym, factor in TOPIC_KEYS[name].synonyms:
        value = broker[synonym]
        if value is not None:
            # -1 means "never" in every unit.
            return value * factor if isinstance(value, int) and factor != 1 and value >= 0 else value
    return _FALLBACK.get(name)


def given_synonyms(broker: BrokerConfig, name: str) -> Iterator[str]:
    """The broker keys a topic's key falls back on, nearest first."""
    for synonym, _ in TOPIC_KEYS[name].synonyms:
        if broker[synonym] is not None:
            yield synonym


def render(value: object) -> str | None:
    """A configuration value as Kafka's DescribeConfigs writes it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(str(each) for each in value)
        case _:
            return str(value)
