"""The consumer's configuration keys: Kafka's names, defaults, ranges, and contradictions (SPEC C3)."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.assign import BUILT_IN
from ottla.base.config import ConfigKey, ConfigType, between, mapping_of, not_empty, one_of, sendable, sendable_name
from ottla.base.duration import duration_ms
from ottla.base.errors import ConfigError
from ottla.base.topic_names import topic_name_problem
from ottla.client.config import CommonConfig, accepted, build, client_keys
from ottla.wire.special_timestamp import SpecialTimestamp

log = logging.getLogger("ottla.consumer")

_AT_LEAST_0 = between(0)
_POLICIES = "must be earliest, latest, none or by_duration:<ISO-8601 duration>"


def reset_time(policy: str, now_ms: int) -> int | None:
    """The time (or SpecialTimestamp) that `auto.offset.reset` means; None for the policy none. Raises ConfigError."""
    match policy:
        case "earliest":
            return SpecialTimestamp.EARLIEST
        case "latest":
            return SpecialTimestamp.LATEST
        case "none":
            return None
    kind, _, text = policy.partition(":")
    ago_ms = duration_ms(text) if kind == "by_duration" else None
    if ago_ms is None:
        raise ConfigError(f"Invalid value {policy!r} for configuration auto.offset.reset: {_POLICIES}")
    return max(0, now_ms - ago_ms)  # below 0 are numbers with a special meaning


def _reset_policy(value: object) -> str | None:
    try:
        reset_time(str(value), 0)
    except ConfigError:
        return _POLICIES
    return None


def _an_instance_id(value: object) -> str | None:
    """Kafka's rule: what a topic could be called."""
    return topic_name_problem(str(value)) if value else "must not be empty"


#: Kafka's default is range and cooperative-sticky. A member with both rebalances eagerly, as with range alone.
DEFAULT_STRATEGY = tuple(name for name in ("range", "cooperative-sticky") if name in BUILT_IN)

CONSUMER_CONFIG = client_keys(
    "consumer",
    (
        ConfigKey("group.id", ConfigType.STRING, None, "The consumer group", sendable_name),
        ConfigKey("group.instance.id", ConfigType.STRING, None, "Makes the member static (KIP-345)", _an_instance_id),
        ConfigKey(
            "session.timeout.ms",
            ConfigType.INT,
            45_000,
            "A member without heartbeats is expelled after this",
            between(1),
        ),
        ConfigKey("heartbeat.interval.ms", ConfigType.INT, 3_000, "Pause between heartbeats", between(1)),
        ConfigKey("max.poll.interval.ms", ConfigType.INT, 300_000, "Longest time between two polls", between(1)),
        ConfigKey("max.poll.records", ConfigType.INT, 500, "Most records one poll returns", between(1)),
        ConfigKey(
            "partition.assignment.strategy", ConfigType.LIST, DEFAULT_STRATEGY, "Assignors, by preference", not_empty
        ),
        ConfigKey("enable.auto.commit", ConfigType.BOOLEAN, True, "Commit what poll() has returned, in the background"),
        ConfigKey("auto.commit.interval.ms", ConfigType.INT, 5_000, "Pause between automatic commits", _AT_LEAST_0),
        ConfigKey(
            "auto.offset.reset", ConfigType.STRING, "latest", "Where to start without a committed offset", _reset_policy
        ),
        ConfigKey(
            "isolation.level",
            ConfigType.STRING,
            "read_uncommitted",
            "Whether to return records of open and aborted transactions",
            one_of("read_uncommitted", "read_committed"),
        ),
        ConfigKey("fetch.min.bytes", ConfigType.INT, 1, "A fetch waits at the broker for so many bytes", _AT_LEAST_0),
        ConfigKey("fetch.max.bytes", ConfigType.INT, 52_428_800, "Most bytes of one fetch", _AT_LEAST_0),
        ConfigKey("fetch.max.wait.ms", ConfigType.INT, 500, "Longest wait for fetch.min.bytes", _AT_LEAST_0),
        ConfigKey("max.partition.fetch.bytes", ConfigType.INT, 1_048_576, "Most bytes of one partition", _AT_LEAST_0),
        ConfigKey("check.crcs", ConfigType.BOOLEAN, True, "Verify the checksum of every batch"),
        ConfigKey(
            "default.api.timeout.ms", ConfigType.INT, 60_000, "Longest time of calls without timeout_s", _AT_LEAST_0
        ),
        ConfigKey("allow.auto.create.topics", ConfigType.BOOLEAN, True, "Ask the broker to create missing topics"),
        ConfigKey("exclude.internal.topics", ConfigType.BOOLEAN, True, "A pattern does not match Kafka's own topics"),
        ConfigKey("key.deserializer", ConfigType.OBJECT, None, "callable or object with deserialize(topic, data)"),
        ConfigKey("value.deserializer", ConfigType.OBJECT, None, "callable or object with deserialize(topic, data)"),
        ConfigKey("client.rack", ConfigType.STRING, "", "Rack of this client, for assignors", sendable),
        ConfigKey(
            "group.protocol",
            ConfigType.STRING,
            "classic",
            "How the consumer is a member of its group; with consumer the broker divides the partitions (KIP-848)",
            one_of("classic", "consumer"),
        ),
        ConfigKey(
            "group.remote.assignor",
            ConfigType.STRING,
            None,
            "The broker's assignor, for group.protocol=consumer; unset: the broker chooses",
            sendable_name,
        ),
        *accepted.CONSUMER,
    ),
)


@dataclass(frozen=True, slots=True)
class ConsumerConfig(CommonConfig):
    """A checked consumer configuration. Times are milliseconds, sizes bytes."""

    group_id: str | None
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    partition_assignment_strategy: tuple[object, ...]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    isolation_level: str
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    default_api_timeout_ms: int
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    key_deserializer: object
    value_deserializer: object
    client_rack: str
    group_protocol: str
    group_remote_assignor: str | None

    @property
    def read_committed(self) -> bool:
        """Whether the consumer returns only committed records."""
        return self.isolation_level == "read_committed"


#: Keys that only one protocol has, and what to do instead with the other.
_ONLY_CLASSIC = {
    "partition.assignment.strategy": "the broker assigns the partitions: leave it out, or name an assignor of the "
    "broker in group.remote.assignor",
    "session.timeout.ms": "the broker decides: leave it out, and set consumer.session.timeout.ms of the group, or "
    "group.consumer.session.timeout.ms of the brokers",
    "heartbeat.interval.ms": "the broker decides: leave it out, and set consumer.heartbeat.interval.ms of the group, "
    "or group.consumer.heartbeat.interval.ms of the brokers",
}
_ONLY_CONSUMER = {
    "group.remote.assignor": "a member of the group assigns the partitions: leave it out and set "
    "partition.assignment.strategy, or set group.protocol=consumer",
}


def _check_protocol(protocol: str, given: Mapping[str, object]) -> None:
    """Raise ConfigError for a key that was given, and has no meaning in this protocol, as in Kafka's own consumers."""
    for key, instead in (_ONLY_CLASSIC if protocol == "consumer" else _ONLY_CONSUMER).items():
        if given.get(key) is not None:
            raise ConfigError(f"{key} cannot be set when group.protocol={protocol}: {instead}")


def consumer_config(given: Mapping[str, object]) -> ConsumerConfig:
    """Parse and check `given`. Raises ConfigError for an unknown key, a bad value, or contradictory keys."""
    protocol = mapping_of(given).get("group.protocol")
    if isinstance(protocol, str):  # Kafka's own consumers accept CONSUMER, too
        given = {**given, "group.protocol": protocol.lower()}
    config = build(ConsumerConfig, CONSUMER_CONFIG, given)
    _check_protocol(config.group_protocol, given)
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise ConfigError("heartbeat.interval.ms must be set lower than the session.timeout.ms")
    if config.heartbeat_interval_ms > config.session_timeout_ms / 3:
        log.warning(
            "heartbeat.interval.ms (%d) is more than a third of session.timeout.ms (%d): the member is expelled after "
            "two lost heartbeats; set it lower",
            config.heartbeat_interval_ms,
            config.session_timeout_ms,
        )
    if config.group_id is None:
        if given.get("enable.auto.commit") in (True, "true"):
            raise ConfigError("enable.auto.commit cannot be set to true when default group id (null) is used.")
        if config.group_instance_id is not None:
            raise ConfigError("group.instance.id is set without group.id: set group.id, too")
    return config
