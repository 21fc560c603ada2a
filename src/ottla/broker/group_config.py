"""A group's own settings (resource type GROUP): keys, limits, and what DescribeConfigs falls back on (KIP-848)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.config import ConfigKey, ConfigSet, ConfigType, between, one_of
from ottla.base.duration import duration_ms
from ottla.base.errors import ConfigError
from ottla.broker.config import BrokerConfig
from ottla.broker.config_keys import BROKER_CONFIG, INT
from ottla.broker.metadata.image import GROUP_RESOURCE, MetadataImage
from ottla.broker.metadata.rules import RefusedError
from ottla.coordinator.group.config import ASSIGNMENT_INTERVAL, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from ottla.wire.errors import ErrorCode


class GroupKey(NamedTuple):
    """A group's key, and the broker's keys that it falls back on and that limit it; None where there are none."""

    key: ConfigKey
    synonym: str | None
    lowest: str | None
    highest: str | None


def _number(name: str, lowest: int, *, low: bool = True, high: bool = True) -> GroupKey:
    """A number `kind.what`, with its broker keys `group.kind.what`, `group.kind.min.what` and `group.kind.max.what`."""
    kind, _, what = name.partition(".")
    synonym = f"group.{name}"
    broker_key = BROKER_CONFIG.keys[synonym]
    return GroupKey(
        ConfigKey(name, INT, broker_key.default, broker_key.doc, between(lowest)),
        synonym,
        f"group.{kind}.min.{what}" if low else None,
        f"group.{kind}.max.{what}" if high else None,
    )


def _alone(key: ConfigKey) -> GroupKey:
    return GroupKey(key, None, None, None)


def _share_reset(value: object) -> str | None:
    kind, _, text = str(value).partition(":")
    if value in ("earliest", "latest") or (kind == "by_duration" and duration_ms(text) is not None):
        return None
    return "must be earliest, latest or by_duration:<ISO-8601 duration>"


_WITHOUT_EFFECT: Final = "There are no such groups here: it is checked and kept, without effect."
GROUP_KEYS: Final[Mapping[str, GroupKey]] = {
    each.key.name: each
    for each in (
        _number(HEARTBEAT_INTERVAL, 1),
        _number(SESSION_TIMEOUT, 1),
        _number(ASSIGNMENT_INTERVAL, 0),
        # share groups (KIP-932) and streams groups (KIP-1071)
        _number("share.session.timeout.ms", 1),
        _number("share.heartbeat.interval.ms", 1),
        _number("share.assignment.interval.ms", 0),
        _number("share.record.lock.duration.ms", 1_000),
        _number("share.delivery.count.limit", 2),
        _number("share.partition.max.record.locks", 100),
        _alone(ConfigKey("share.auto.offset.reset", ConfigType.STRING, "latest", _WITHOUT_EFFECT, _share_reset)),
        _alone(
            ConfigKey(
                "share.isolation.level",
                ConfigType.STRING,
                "read_uncommitted",
                _WITHOUT_EFFECT,
                one_of("read_committed", "read_uncommitted"),
            )
        ),
        _alone(ConfigKey("share.renew.acknowledge.enable", ConfigType.BOOLEAN, True, _WITHOUT_EFFECT)),
        _number("streams.session.timeout.ms", 1),
        _number("streams.heartbeat.interval.ms", 1),
        _number("streams.assignment.interval.ms", 0),
        _number("streams.initial.rebalance.delay.ms", 0, low=False, high=False),
    )
} | {
    # the one key whose limit has another name
    "streams.num.standby.replicas": _number("streams.num.standby.replicas", 0, low=False)._replace(
        highest="group.streams.max.standby.replicas"
    )
}
GROUP_CONFIG: Final = ConfigSet.of("group", (each.key for each in GROUP_KEYS.values()))


def default_of(broker: BrokerConfig, name: str) -> object:
    """What holds for a group without a setting of its own."""
    own = GROUP_KEYS[name]
    return own.key.default if own.synonym is None else broker[own.synonym]


def check_group_configs(broker: BrokerConfig, given: Mapping[str, str | None]) -> dict[str, str]:
    """All of a group's own settings; RefusedError for one that is unknown, bad, or beyond the broker's limits."""
    values = {name: default_of(broker, name) for name in GROUP_KEYS}
    for name, text in given.items():
        own = GROUP_KEYS.get(name)
        if own is None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            value = own.key.parse(text)
        except ConfigError as fault:
            raise RefusedError(ErrorCode.INVALID_CONFIG, str(fault)) from None
        if isinstance(value, int) and own.lowest is not None and value < broker.int(own.lowest):
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {own.lowest}")
        if isinstance(value, int) and own.highest is not None and value > broker.int(own.highest):
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {own.highest}")
        values[name] = value
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = (values[f"{kind}.{what}"] for what in ("session.timeout.ms", "heartbeat.interval.ms"))
        assert isinstance(session, int)
        assert isinstance(heartbeat, int)
        if session <= heartbeat:
            text = f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms"
            raise RefusedError(ErrorCode.INVALID_CONFIG, text)
    return {name: str(text) for name, text in given.items()}


def own_settings(broker: BrokerConfig, image: MetadataImage, group_id: str) -> dict[str, int]:
    """A consumer group's own settings in force: within the broker's limits, which may have changed since."""
    found = image.configs.get((GROUP_RESOURCE, group_id))
    if not found:
        return {}
    values: dict[str, int] = {}
    for name in (HEARTBEAT_INTERVAL, SESSION_TIMEOUT, ASSIGNMENT_INTERVAL):
        own = GROUP_KEYS[name]
        if name in found and own.lowest is not None and own.highest is not None:
            values[name] = min(max(int(found[name]), broker.int(own.lowest)), broker.int(own.highest))
    return values
