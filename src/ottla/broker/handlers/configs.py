"""Settings as DescribeConfigs and CreateTopics tell them: value, where it comes from, what stands behind it."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.base.config import ConfigKey, ConfigType
from ottla.broker.config import BrokerConfig
from ottla.broker.config_keys import BROKER_CONFIG
from ottla.broker.topic_config import TOPIC_KEYS, default_value, given_synonyms, render


class ConfigSource(IntEnum):
    """DescribeConfigsResponse.ConfigSource of Kafka's clients."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


#: DescribeConfigsResponse.ConfigType of Kafka's clients.
CONFIG_TYPES: Final = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
}


class Synonym(NamedTuple):
    """One layer of a setting."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting; `synonyms` lists all layers, the effective one first."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    key: ConfigKey
    synonyms: tuple[Synonym, ...]


def topic_entries(broker: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """All settings of a topic with these overrides."""
    for name, topic_key in TOPIC_KEYS.items():
        layers = []
        if name in overrides:
            layers.append(Synonym(name, overrides[name], ConfigSource.DYNAMIC_TOPIC))
        default = render(default_value(broker, name))
        for synonym in given_synonyms(broker, name):
            source = ConfigSource.STATIC_BROKER if synonym in broker.given else ConfigSource.DEFAULT
            layers.append(Synonym(synonym, render(broker[synonym]), source))
        value, source = default, layers[0].source if layers else ConfigSource.DEFAULT
        if name in overrides:
            value = overrides[name]
        yield ConfigEntry(name, value, source, False, topic_key.key, tuple(layers))


def broker_entries(broker: BrokerConfig) -> Iterator[ConfigEntry]:
    """All settings of the broker; none can be changed while it runs."""
    for name, key in BROKER_CONFIG.keys.items():
        value = render(broker[name])
        source = ConfigSource.STATIC_BROKER if name in broker.given else ConfigSource.DEFAULT
        layers = [Synonym(name, value, source)]
        if source is ConfigSource.STATIC_BROKER:
            layers.append(Synonym(name, render(key.default), ConfigSource.DEFAULT))
        yield ConfigEntry(name, value, source, True, key, tuple(layers))
