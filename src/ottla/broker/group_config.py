"""A group's own settings (resource type GROUP): keys, limits, and what DescribeConfigs falls back on (KIP-848)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.config import ConfigKey, ConfigSet, between
from ottla.base.errors import ConfigError
from ottla.broker.config import BrokerConfig
from ottla.broker.config_keys import BROKER_CONFIG, INT
from ottla.broker.metadata.image import GROUP_RESOURCE, MetadataImage
from ottla.coordinator.group.config import ASSIGNMENT_INTERVAL, HEARTBEAT_INTERVAL, SESSION_TIMEOUT


class GroupKey(NamedTuple):
    """A group's key, the broker key that it falls back on, and the two that limit it."""

    key: ConfigKey
    synonym: str
    lowest: str
    highest: str


def _key(name: str, lowest: int) -> GroupKey:
    synonym, low, high = (f"group.{name.replace('consumer.', f'consumer.{prefix}')}" for prefix in ("", "min.", "max."))
    broker_key = BROKER_CONFIG.keys[synonym]
    return GroupKey(ConfigKey(name, INT, broker_key.default, broker_key.doc, between(lowest)), synonym, low, high)


GROUP_KEYS: Final[Mapping[str, GroupKey]] = {
    each.key.name: each
    for each in (_key(HEARTBEAT_INTERVAL, 1), _key(SESSION_TIMEOUT, 1), _key(ASSIGNMENT_INTERVAL, 0))
}
GROUP_CONFIG: Final = ConfigSet.of("group", (each.key for each in GROUP_KEYS.values()))


def check_group_configs(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """ConfigError for settings of a group that are unknown, bad, or beyond the broker's limits."""
    for name, text in overrides.items():
        value = GROUP_CONFIG.find(name).parse(text)
        assert isinstance(value, int)
        own = GROUP_KEYS[name]
        if value < broker.int(own.lowest):
            raise ConfigError(f"{name} must be greater than or equal to {own.lowest}")
        if value > broker.int(own.highest):
            raise ConfigError(f"{name} must be less than or equal to {own.highest}")
    session = int(overrides.get(SESSION_TIMEOUT, broker.int(GROUP_KEYS[SESSION_TIMEOUT].synonym)))
    if session <= int(overrides.get(HEARTBEAT_INTERVAL, broker.int(GROUP_KEYS[HEARTBEAT_INTERVAL].synonym))):
        raise ConfigError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def own_settings(broker: BrokerConfig, image: MetadataImage, group_id: str) -> dict[str, int]:
    """A group's own settings in force: within the broker's limits, which may have changed since they were set."""
    found = image.configs.get((GROUP_RESOURCE, group_id))
    if not found:
        return {}
    values = {}
    for name, text in found.items():
        own = GROUP_KEYS.get(name)
        if own is not None:  # a directory of Apache Kafka may have settings of share and streams groups, too
            values[name] = min(max(int(text), broker.int(own.lowest)), broker.int(own.highest))
    return values
