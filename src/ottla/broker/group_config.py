"""A group's own settings (resource type GROUP): keys, limits, and what DescribeConfigs falls back on (KIP-848)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.config import ConfigKey, ConfigSet, between
from ottla.base.errors import ConfigError
from ottla.broker.config import BrokerConfig
from ottla.broker.config_keys import BROKER_CONFIG, INT
from ottla.broker.metadata.image import GROUP_RESOURCE, MetadataImage
from ottla.broker.metadata.rules import RefusedError
from ottla.coordinator.group.config import ASSIGNMENT_INTERVAL, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from ottla.wire.errors import ErrorCode


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


def check_group_configs(broker: BrokerConfig, given: Mapping[str, str | None]) -> dict[str, str]:
    """All of a group's own settings; RefusedError for one that is unknown, bad, or beyond the broker's limits."""
    values = {name: broker.int(each.synonym) for name, each in GROUP_KEYS.items()}
    for name, text in given.items():
        own = GROUP_KEYS.get(name)
        if own is None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            value = own.key.parse(text)
        except ConfigError as fault:
            raise RefusedError(ErrorCode.INVALID_CONFIG, str(fault)) from None
        assert isinstance(value, int)
        if value < broker.int(own.lowest):
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {own.lowest}")
        if value > broker.int(own.highest):
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {own.highest}")
        values[name] = value
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")
    return {name: str(text) for name, text in given.items()}


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
