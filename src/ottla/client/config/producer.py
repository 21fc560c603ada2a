"""The producer's configuration keys: Kafka's names, defaults, ranges, and contradictions (SPEC C3, P1)."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ottla.base.config import ConfigKey, ConfigType, between, mapping_of, one_of, sendable_name
from ottla.base.errors import ConfigError
from ottla.client.config import CommonConfig, accepted, build, client_keys

log = logging.getLogger("ottla.producer")

_MAX_IN_FLIGHT_WITH_IDEMPOTENCE = 5
_AT_LEAST_0 = between(0)

PRODUCER_CONFIG = client_keys(
    "producer",
    (
        ConfigKey(
            "acks", ConfigType.STRING, "all", "Which replicas must have a record first", one_of("all", "-1", "0", "1")
        ),
        ConfigKey("enable.idempotence", ConfigType.BOOLEAN, True, "Each record is written once and in order (KIP-98)"),
        ConfigKey("retries", ConfigType.INT, 2**31 - 1, "Repetitions of a failed send", _AT_LEAST_0),
        ConfigKey(
            "max.in.flight.requests.per.connection",
            ConfigType.INT,
            5,
            "Most unanswered requests to one broker",
            between(1),
        ),
        ConfigKey("delivery.timeout.ms", ConfigType.INT, 120_000, "From send() to success or failure", _AT_LEAST_0),
        ConfigKey("linger.ms", ConfigType.LONG, 5, "How long a batch may wait for more records", _AT_LEAST_0),
        ConfigKey("batch.size", ConfigType.INT, 16_384, "Bytes at which a batch is full", _AT_LEAST_0),
        ConfigKey("buffer.memory", ConfigType.LONG, 33_554_432, "Most bytes of unacknowledged records", _AT_LEAST_0),
        ConfigKey(
            "max.block.ms", ConfigType.LONG, 60_000, "Longest wait for room in the buffer, or for metadata", _AT_LEAST_0
        ),
        ConfigKey("max.request.size", ConfigType.INT, 1_048_576, "Largest request, in bytes", _AT_LEAST_0),
        ConfigKey(
            "compression.type",
            ConfigType.STRING,
            "none",
            "How batches are compressed",
            one_of("none", "gzip", "snappy", "lz4", "zstd"),
        ),
        ConfigKey("compression.gzip.level", ConfigType.INT, -1, "1 to 9; -1: gzip's default", between(-1, 9)),
        ConfigKey("compression.lz4.level", ConfigType.INT, 9, "1 to 17", between(1, 17)),
        ConfigKey("compression.zstd.level", ConfigType.INT, 3, "-131072 to 22", between(-131_072, 22)),
        ConfigKey(
            "partitioner.class", ConfigType.OBJECT, None, "callable(topic, key, count) -> int; none: Kafka's rule"
        ),
        ConfigKey("partitioner.ignore.keys", ConfigType.BOOLEAN, False, "Spread records evenly, also those with a key"),
        ConfigKey("key.serializer", ConfigType.OBJECT, None, "callable or object with serialize(topic, data)"),
        ConfigKey("value.serializer", ConfigType.OBJECT, None, "callable or object with serialize(topic, data)"),
        ConfigKey("transactional.id", ConfigType.STRING, None, "Turns transactions on", sendable_name),
        ConfigKey(
            "metadata.max.idle.ms",
            ConfigType.LONG,
            300_000,
            "A topic is forgotten after no record was sent to it for so long",
            between(5_000),
        ),
        ConfigKey(
            "transaction.timeout.ms",
            ConfigType.INT,
            60_000,
            "The coordinator aborts a transaction after this",
            between(1),
        ),
        ConfigKey(
            "transaction.two.phase.commit.enable",
            ConfigType.BOOLEAN,
            False,
            "Transactions never time out: another system decides them (KIP-939)",
        ),
        *accepted.PRODUCER,
    ),
)


@dataclass(frozen=True, slots=True)
class ProducerConfig(CommonConfig):
    """A checked producer configuration. Times are milliseconds, sizes bytes."""

    acks: str
    enable_idempotence: bool
    retries: int
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: int
    linger_ms: int
    batch_size: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    partitioner_class: Callable[[str, bytes | None, int], int] | None
    partitioner_ignore_keys: bool
    key_serializer: object
    value_serializer: object
    transactional_id: str | None
    metadata_max_idle_ms: int
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool

    @property
    def required_acks(self) -> int:
        """`acks` as the wire has it: -1 for all."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def compression_level(self) -> int | None:
        """The level of the chosen codec; None for the codec's default."""
        level = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }.get(self.compression_type)
        return None if level == -1 else level


def producer_config(given: Mapping[str, object]) -> ProducerConfig:
    """Parse and check `given`. Raises ConfigError for an unknown key, a bad value, or contradictory keys."""
    if isinstance(mapping_of(given).get("acks"), int):  # Kafka's type is a string, users write numbers
        given = {**given, "acks": str(given["acks"])}
    if isinstance(given.get("partitioner.class"), str):
        _require_kafkas_rule(str(given["partitioner.class"]))
        given = {**given, "partitioner.class": None}
    config = _with_idempotence(build(ProducerConfig, PRODUCER_CONFIG, given), given)
    if config.transactional_id is not None and not config.enable_idempotence:
        raise ConfigError("Cannot set a transactional.id without also enabling idempotence.")
    if config.transaction_two_phase_commit_enable and config.transactional_id is None:
        raise ConfigError("transaction.two.phase.commit.enable is about transactions: set a transactional.id, too.")
    if config.transaction_two_phase_commit_enable and "transaction.timeout.ms" in given:
        raise ConfigError(
            "Cannot set transaction.timeout.ms when transaction.two.phase.commit.enable is set to true. Transactions "
            "will not expire with two-phase commit enabled."
        )
    return _with_delivery_timeout(config, given)


#: Older names of Kafka's rule, which is what a producer without a partitioner follows. Apache Kafka 4 has removed them.
_KAFKAS_RULE = frozenset(
    f"org.apache.kafka.clients.producer.{name}" for name in ("internals.DefaultPartitioner", "UniformStickyPartitioner")
)


def _require_kafkas_rule(name: str) -> None:
    """ConfigError for the name of another Java class in partitioner.class."""
    if name.strip() and name.strip() not in _KAFKAS_RULE:
        raise ConfigError(
            f"Invalid value {name!r} for configuration partitioner.class: Java classes cannot be called; give a "
            "function of topic, key and number of partitions, or leave the key out for Kafka's rule"
        )


def _with_idempotence(config: ProducerConfig, given: Mapping[str, object]) -> ProducerConfig:
    """Kafka's rule: a contradiction is an error if the user has set idempotence; otherwise it turns idempotence off."""
    if not config.enable_idempotence:
        return config
    if config.max_in_flight_requests_per_connection > _MAX_IN_FLIGHT_WITH_IDEMPOTENCE:
        raise ConfigError("Must set max.in.flight.requests.per.connection to at most 5 to use the idempotent producer.")
    problem = None
    if config.retries == 0:
        problem = "Must set retries to non-zero when using the idempotent producer."
    elif config.required_acks != -1:
        problem = (
            "Must set acks to all in order to use the idempotent producer. Otherwise we cannot guarantee idempotence."
        )
    if problem is None:
        return config
    if "enable.idempotence" in given:
        raise ConfigError(problem)
    log.info("idempotence is off, because retries is %s and acks is %s", config.retries, config.acks)
    return replace(config, enable_idempotence=False)


def _with_delivery_timeout(config: ProducerConfig, given: Mapping[str, object]) -> ProducerConfig:
    least = config.linger_ms + config.request_timeout_ms
    if config.delivery_timeout_ms >= least:
        return config
    if "delivery.timeout.ms" in given:
        raise ConfigError("delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms")
    return replace(config, delivery_timeout_ms=least)
