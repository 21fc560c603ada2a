"""Checks a change of metadata before it is written. The messages tell a user what to do."""

from collections.abc import Iterable, Mapping

from ottla.base.errors import ConfigError, OttlaError
from ottla.base.limits import MAX_CHANGES, MAX_NEW_PARTITIONS
from ottla.base.topic_names import topic_name_problem
from ottla.base.words import cut
from ottla.broker.config import BrokerConfig
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.names import METADATA_TOPIC, TopicNames
from ottla.broker.topic_config import TopicConfig
from ottla.wire.errors import ErrorCode


class RefusedError(OttlaError):
    """A change is refused. `error` is the code that the client gets beside the message."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(cut(message))
        self.error = error


def check_name(name: str, image: MetadataImage, coming: TopicNames) -> None:
    """Refuse a new topic's name unless it is legal, new, and different from all others in metrics.

    `coming` are names of topics that are being made now.
    """
    problem = topic_name_problem(name)
    if problem is not None:
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    if name == METADATA_TOPIC:  # its directory is the metadata log's
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics or name in coming:
        raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if twins := dict.fromkeys((*image.names.alike(name), *coming.alike(name))):
        raise RefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {', '.join(twins)}"
        )


def check_partitions(count: int) -> int:
    """Refuse a bad number of partitions; returns it."""
    if count <= 0:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    return count


def check_total_partitions(counts: Iterable[int]) -> None:
    """Refuse a whole request whose topics want too many partitions together, as Apache Kafka does."""
    if sum(max(count, 0) for count in counts) > MAX_NEW_PARTITIONS:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION, f"At most {MAX_NEW_PARTITIONS} partitions can be made at a time, of all topics."
        )


def check_replicas(default: int, wanted: int) -> None:
    """Refuse a replication factor that one node cannot give; -1 means the broker's default."""
    factor = default if wanted == -1 else wanted
    if factor <= 0:
        raise RefusedError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if factor > 1:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): there is only 1 broker.",
        )


def check_configs(broker: BrokerConfig, given: Mapping[str, str | None]) -> dict[str, str]:
    """All of a topic's own settings, each known and good, and none in conflict with another."""
    found: dict[str, str] = {}
    for name, value in given.items():
        if value is None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
        found[name] = value
    try:
        TopicConfig(broker, found)
    except ConfigError as fault:
        raise RefusedError(ErrorCode.INVALID_CONFIG, str(fault)) from None
    return found


def check_changes(count: int, what: str) -> None:
    """RefusedError when one request changes more than may be changed at once. `what` are they?"""
    if count > MAX_CHANGES:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION,
            f"At most {MAX_CHANGES} {what} can be changed in one request, and these are {count}: send several requests",
        )
