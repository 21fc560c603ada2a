"""Settings as DescribeConfigs and CreateTopics show them: value, source, and what the setting would fall back on."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import Final, NamedTuple

from ottla.base.config import ConfigKey, ConfigType
from ottla.broker.config import BrokerConfig
from ottla.broker.config_keys import BROKER_CONFIG, FAMILIES
from ottla.broker.group_config import GROUP_KEYS, default_of
from ottla.broker.topic_config import TOPIC_KEYS, default_value, render


class ConfigSource(IntEnum):
    """DescribeConfigsResponse.ConfigSource of Kafka's clients."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


_STATIC = ConfigSource.STATIC_BROKER

#: DescribeConfigsResponse.ConfigType of Kafka's clients.
CONFIG_TYPES: Final = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.SHORT: 4,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.CLASS: 8,
    ConfigType.PASSWORD: 9,
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
        key = topic_key.key
        layers = _layers(broker, topic_key.synonyms[0][0]) if topic_key.synonyms else ()
        if name in overrides:
            value = render(key.parse(overrides[name]))
            layers = (Synonym(name, value, ConfigSource.DYNAMIC_TOPIC), *layers)
        elif key.internal:
            continue
        else:
            value = render(default_value(broker, name))
        source = layers[0].source if layers else ConfigSource.DEFAULT
        yield ConfigEntry(name, value, source, False, key, layers)


def group_entries(broker: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """All settings of a group with these overrides."""
    for name, own in GROUP_KEYS.items():
        value = render(default_of(broker, name))
        if own.synonym is None:
            layers: tuple[Synonym, ...] = (Synonym(name, value, ConfigSource.DEFAULT),)
        else:
            layers = _layers(broker, own.synonym)
        if name in overrides:
            value = render(own.key.parse(overrides[name]))
            layers = (Synonym(name, value, ConfigSource.DYNAMIC_GROUP), *layers)
        yield ConfigEntry(name, value, layers[0].source, False, own.key, layers)


def broker_entries(broker: BrokerConfig) -> Iterator[ConfigEntry]:
    """All settings of the broker; none can be changed while it runs."""
    for name, key in BROKER_CONFIG.keys.items():
        if key.internal:
            continue
        layers = _layers(broker, name)
        source = layers[0].source if layers else ConfigSource.DEFAULT
        entry = ConfigEntry(name, _shown(key, broker[name]), source, True, key, layers)
        yield entry
        for spelling in key.synonyms:
            yield entry._replace(name=spelling, synonyms=tuple(each._replace(name=spelling) for each in layers))


def _layers(broker: BrokerConfig, name: str) -> tuple[Synonym, ...]:
    """The layers of a broker key, the key's own first: values that were set, then defaults.

    As in Kafka, `log.retention.hours` comes after `log.retention.ms`, but only if the latter has a value.
    """
    family = next((each for each in FAMILIES if name in each), (name,))
    keys = [BROKER_CONFIG.keys[each] for each in family]
    layers = [Synonym(key.name, _shown(key, broker[key.name]), _STATIC) for key in keys if key.name in broker.given]
    layers += [
        Synonym(key.name, _shown(key, key.default), ConfigSource.DEFAULT) for key in keys if key.default is not None
    ]
    return tuple(dropwhile(lambda layer: layer.name != name, layers))


def _shown(key: ConfigKey, value: object) -> str | None:
    return None if key.sensitive else render(value)
