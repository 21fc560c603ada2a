"""What `exactly_once` is told, checked: one configuration becomes those of a consumer and of a producer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.base.config import mapping_of
from ottla.base.errors import ConfigError
from ottla.client.config.consumer import CONSUMER_CONFIG, consumer_config
from ottla.client.config.producer import PRODUCER_CONFIG, producer_config
from ottla.client.core.consumer.subscription import Wanted
from ottla.client.core.metadata import checked_topic

#: Set here, because with another value a record could be lost or be there twice; and the only value that may be given.
_FIXED: Mapping[str, tuple[object, str]] = {
    "enable.auto.commit": (False, "offsets are committed in the transaction of their batch"),
    "isolation.level": ("read_committed", "else aborted records of the source would be worked on"),
    "enable.idempotence": (True, "transactions need it"),
    "transaction.two.phase.commit.enable": (
        False,
        "nobody else decides about its transactions, and without a time-out one whose process does not come back would "
        "hold back readers for ever",
    ),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What is read, where it is written to, and the configurations of the two clients."""

    source: Wanted
    sink: str
    transactional_id: str
    consumer: Mapping[str, object]
    producer: Mapping[str, object]
    transaction_timeout_ms: int
    until_end: bool

    def reads(self, topic: str) -> bool:
        """Whether the topic is one of the source. A pattern that only the brokers know says nothing here."""
        if isinstance(self.source, re.Pattern):
            return self.source.fullmatch(topic) is not None
        return isinstance(self.source, tuple) and topic in self.source


def settings(
    source: str | Wanted, sink: str, transactional_id: str, config: Mapping[str, object], *, until_end: bool = False
) -> Settings:
    """Check everything before anything is connected. Raises ConfigError, TypeError, KafkaError for a topic's name."""
    checked_topic(sink)
    if not isinstance(transactional_id, str) or not transactional_id:
        raise ConfigError(f"transactional_id must be a text that is not empty, not {transactional_id!r}")
    wanted = _source(source, sink)
    given = _split(config)
    if given.consumer.get("group.id") is None:
        raise ConfigError(
            "exactly_once needs a group.id: the group's committed offsets say where to go on. All processes that share "
            "the work have the same one, and each has a transactional_id of its own"
        )
    reading = {"auto.offset.reset": "earliest", **given.consumer}
    writing = {**given.producer, "transactional.id": transactional_id}
    consumer_config(reading)
    timeout_ms = producer_config(writing).transaction_timeout_ms
    return Settings(wanted, sink, transactional_id, reading, writing, timeout_ms, until_end)


def _source(source: Any, sink: str) -> Wanted:
    if isinstance(source, re.Pattern):
        matches_sink = source.fullmatch(sink) is not None
        wanted: Wanted = source
    elif isinstance(source, str):
        wanted, matches_sink = (checked_topic(source),), source == sink
    elif hasattr(source, "pattern"):
        wanted, matches_sink = source, False  # only the brokers can tell what it matches
    else:
        wanted = tuple(checked_topic(name) for name in source)
        matches_sink = sink in wanted
    if matches_sink:
        raise ConfigError(f"the sink {sink} is read, too: what is written would be worked on again, without end")
    if wanted == ():
        raise ConfigError("exactly_once needs a source: name a topic, or several")
    return wanted


@dataclass(frozen=True, slots=True)
class _Given:
    consumer: dict[str, object]
    producer: dict[str, object]


def _split(config: Mapping[str, object]) -> _Given:
    """Each key goes to the client that knows it, a common one to both. Raises ConfigError for any other."""
    if "transactional.id" in mapping_of(config):
        raise ConfigError("transactional.id is an argument of exactly_once: leave it out of the configuration")
    given = _Given({}, {})
    for key, value in config.items():
        if key not in CONSUMER_CONFIG.keys and key not in PRODUCER_CONFIG.keys:
            raise ConfigError(f"{CONSUMER_CONFIG.unknown(key)} (exactly_once takes keys of consumer and producer)")
        if key in CONSUMER_CONFIG.keys:
            given.consumer[key] = value
        if key in PRODUCER_CONFIG.keys:
            given.producer[key] = value
    for key, (value, why) in _FIXED.items():
        for known, of_client in ((CONSUMER_CONFIG, given.consumer), (PRODUCER_CONFIG, given.producer)):
            if key in known.keys:
                asked = of_client.setdefault(key, value)
                if known.find(key).parse(asked) != value:
                    raise ConfigError(f"{key}={asked} cannot be used with exactly_once: {why}. Leave it out")
    return given
