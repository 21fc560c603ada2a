"""The broker's configuration: from a properties file, the environment and the command line, later ones winning."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ottla.base.config import ConfigSet, Standing
from ottla.base.errors import ConfigError
from ottla.base.properties import read_properties
from ottla.broker.access.authorizer import parse_super_users
from ottla.broker.config_keys import BROKER_CONFIG, FAMILIES, OF_THE_AUTHORIZER
from ottla.broker.config_security import SASL, TLS
from ottla.broker.listener_keys import PREFIX, ListenerKeys
from ottla.broker.listeners import Listener, client_listeners

#: `OTTLA_LOG_RETENTION_MS=1000` sets `log.retention.ms`. Names reserved for other uses are not read as keys.
ENVIRONMENT_PREFIX = "OTTLA_"
_NOT_KEYS = frozenset(
    f"{ENVIRONMENT_PREFIX}{name}"
    for name in ("BOOTSTRAP", "BROKER_LOGS", "EXPLORE", "FAULT", "FAULT_DIR", "INTERPRETED")
)

_REMOVED: Final = "Apache Kafka 4 has removed it"
#: Keys by how their names begin.
_FOREIGN: Final[Mapping[str, str]] = {
    "zookeeper.": "neither Apache Kafka 4 nor Ottla has a ZooKeeper",
    "rsm.config.": "there is no tiered storage",
    "rlmm.config.": "there is no tiered storage",
    "inter.broker.protocol.version": _REMOVED,
    "log.message.format.version": _REMOVED,
    "log.message.timestamp.difference.max.ms": f"{_REMOVED}; log.message.timestamp.before.max.ms is its successor",
}

#: 16 bytes in base64 without padding. The last character has more bits than needed; as in Kafka, they are ignored.
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
#: Other spellings of keys (`broker.id`, `log.dir`).
_SPELLINGS = {name: key.name for key in BROKER_CONFIG.keys.values() for name in key.synonyms}


class BrokerConfig:
    """Checked values of every broker key; `given` names those that somebody set (DescribeConfigs' source)."""

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        given = canonical(given or {})
        of_listeners = {name: value for name, value in given.items() if name.startswith(PREFIX)}
        given = {name: value for name, value in given.items() if name not in of_listeners}
        _reject_foreign(given)
        self.given = frozenset(given)
        self._values = BROKER_CONFIG.parse(given)
        controllers = self.list("controller.listener.names")
        #: The listeners for clients, in their order.
        self.listeners = client_listeners(
            self.list("listeners"),
            self.list("advertised.listeners"),
            self.text("listener.security.protocol.map") or "",
            controllers,
            is_given="listener.security.protocol.map" in given,
        )
        self._of_listeners = ListenerKeys(of_listeners, self.listeners, controllers)
        if self.list("process.roles") == ("controller",):
            raise ConfigError(
                "process.roles=controller: a controller alone has no use here, for one node is broker and controller; "
                "leave the key out, or say broker,controller"
            )
        cluster_id = self.text("cluster.id")
        if cluster_id is not None and _CLUSTER_ID.fullmatch(cluster_id) is None:
            raise ConfigError(f"cluster.id {cluster_id!r}: expected 22 characters of URL-safe base64 (a uuid)")
        dirs = self.list("log.dirs")
        if len(dirs) != 1:
            raise ConfigError(f"log.dirs: exactly one directory is supported, got {', '.join(dirs)}")
        self.data_dir = Path(dirs[0])
        kept = next(each for each in FAMILIES[0] if self._values[each] is not None)
        if self._values[kept] == 0:
            raise ConfigError(f"{kept} must be at least 1, or -1 for never")
        if "classic" not in self.list("group.coordinator.rebalance.protocols"):
            raise ConfigError("group.coordinator.rebalance.protocols: classic cannot be left out")
        if self.int("group.min.session.timeout.ms") > self.int("group.max.session.timeout.ms"):
            raise ConfigError("group.min.session.timeout.ms is above group.max.session.timeout.ms")
        self._check_consumer_groups()
        #: Who may do everything, if there is an authorizer.
        self.super_users = parse_super_users(self.text("super.users") or "")

    def _check_consumer_groups(self) -> None:
        """Settings of consumer groups must lie between the least and the most that a group may have."""
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            key, low, high = (f"group.consumer.{prefix}{name}" for prefix in ("", "min.", "max."))
            if self.int(low) > self.int(high):
                raise ConfigError(f"{low} is above {high}")
            if not self.int(low) <= self.int(key) <= self.int(high):
                raise ConfigError(
                    f"{key} is {self.int(key)}: it must be from {self.int(low)} ({low}) to {self.int(high)} ({high})"
                )
        if self.int("group.consumer.heartbeat.interval.ms") >= self.int("group.consumer.session.timeout.ms"):
            raise ConfigError("group.consumer.heartbeat.interval.ms must be below group.consumer.session.timeout.ms")

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def of_listener(self, listener: Listener, name: str) -> object:
        """A key's value for this listener: its own (`listener.name.<name>.<key>`), or the broker's."""
        return self._of_listeners.get(listener.name, name, self._values.get(name))

    def own_of_listener(self, listener: Listener, name: str) -> object:
        """A key's own value for this listener (`listener.name.<name>.<key>`), or None."""
        return self._of_listeners.get(listener.name, name, None)

    def asks_who_they_are(self, listener: Listener) -> bool:
        """Whether nobody can use this listener without saying who he is."""
        return listener.protocol.has_sasl or (listener.protocol.has_tls and self.client_auth(listener) == "required")

    def client_auth(self, listener: Listener) -> object:
        """`ssl.client.auth` of a listener with TLS. With SASL only the listener's own value counts (KIP-684)."""
        if listener.protocol.has_sasl:
            return self._of_listeners.get(listener.name, "ssl.client.auth", "none")
        return self.of_listener(listener, "ssl.client.auth")

    # One method for each type of value. A key that does not exist raises KeyError. Units are in the keys' names.

    def int(self, name: str) -> int:
        """A whole number, of a key that always has a value."""
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def float(self, name: str) -> float:
        """A number, of a key that always has a value."""
        value = self._values[name]
        assert isinstance(value, int | float), name
        return value

    def flag(self, name: str) -> bool:
        """A boolean; False when it has no value."""
        return self._values[name] is True

    def text(self, name: str) -> str | None:
        """A text, or None."""
        value = self._values[name]
        assert value is None or isinstance(value, str), name
        return value

    def list(self, name: str) -> tuple[str, ...]:
        """A list; empty when it has no value."""
        value = self._values[name]
        assert value is None or isinstance(value, tuple), name
        return tuple(str(each) for each in value or ())

    def without_effect(self) -> tuple[str, ...]:
        """The keys that somebody set to another value than the default although they have no effect."""
        idle: set[str] = set() if self.text("authorizer.class.name") else set(OF_THE_AUTHORIZER)
        protocols = [each.protocol for each in self.listeners]
        if any(each.has_sasl for each in protocols):
            idle -= {"audit.log.path"}  # it has those who could not authenticate
        else:
            idle |= {key.name for key in SASL}
        if not any(each.has_tls for each in protocols):
            idle |= {key.name for key in TLS}
        if all(each.has_sasl or not each.has_tls for each in protocols):
            idle |= {"ssl.client.auth"}  # see `client_auth`
        return tuple(
            sorted(
                name
                for name in self.given
                if (BROKER_CONFIG.keys[name].standing is Standing.WITHOUT_EFFECT or name in idle)
                and self._values[name] != BROKER_CONFIG.keys[name].default
            )
        )


def canonical(given: Mapping[str, object]) -> dict[str, object]:
    """One source's keys by their main names. A main name wins over other spellings; two ids must agree, as in Kafka."""
    found = dict(given)
    for spelling, name in _SPELLINGS.items():
        if spelling not in found:
            continue
        value = found.pop(spelling)
        if spelling == "broker.id" and str(found.get(name, value)).strip() != str(value).strip():
            raise ConfigError(f"node.id={found[name]} and broker.id={value}: they must be the same")
        found.setdefault(name, value)
    return found


def _reject_foreign(given: Mapping[str, object]) -> None:
    """Refuse keys that Kafka does not have but whose meaning is known, with a better reason than "unknown"."""
    for name in given:
        for prefix, reason in _FOREIGN.items():
            if name.startswith(prefix) and name not in BROKER_CONFIG.keys:
                raise ConfigError(f"{name} cannot be used: {reason}")


def from_environment(environ: Mapping[str, str], keys: ConfigSet = BROKER_CONFIG) -> dict[str, object]:
    """Keys given as OTTLA_ variables. A variable that names no key is refused, and the error names the nearest one."""
    found: dict[str, object] = {}
    for name, value in environ.items():
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _NOT_KEYS:
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
            found[key if key in _SPELLINGS else keys.find(key).name] = value
    return canonical(found)


def from_file(path: Path) -> dict[str, object]:
    """Read a `server.properties`: what `read_properties` gives, under the keys' own names."""
    return canonical(read_properties(path))


def from_options(options: Iterable[str]) -> dict[str, object]:
    """`-o key=value` arguments."""
    found: dict[str, object] = {}
    for option in options:
        key, separator, value = option.partition("=")
        if not separator or not key.strip():
            shown = " ".join(option.split()[:1])  # what is behind a blank may be a password
            raise ConfigError(f"-o {shown!r}: expected key=value")
        found[key.strip()] = value.strip()
    return canonical(found)
