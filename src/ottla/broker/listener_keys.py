"""`listener.name.<name>.<key>`: settings of one listener. They win over the plain key, as in Kafka."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ottla.base.config import ConfigKey, ConfigType
from ottla.base.errors import ConfigError
from ottla.broker.config_keys import BROKER_CONFIG
from ottla.broker.config_security import OAUTH
from ottla.broker.listeners import Listener
from ottla.wire.sasl import MECHANISMS

PREFIX: Final = "listener.name."
#: How the keys begin that a listener may have of its own.
_OWN: Final = ("ssl.", "sasl.", "connections.max.reauth.ms")
#: Other keys of this kind; without an own value a listener has no limit but the broker's.
_LIMITS: Final = ("max.connections", "max.connection.creation.rate")


#: The users of a mechanism, or its login module; the value is never shown.
_JAAS: Final = ConfigKey("sasl.jaas.config", ConfigType.PASSWORD, None, sensitive=True)
#: Keys that stand behind a mechanism's name, in small letters (`listener.name.<name>.plain.sasl.jaas.config`).
_OF_MECHANISMS: Final = {
    _JAAS.name: _JAAS,
    "connections.max.reauth.ms": BROKER_CONFIG.keys["connections.max.reauth.ms"],
    **{each.name: each for each in OAUTH},
}


class ListenerKeys:
    """The settings of each listener that differ from the broker's."""

    def __init__(self, given: Mapping[str, object], listeners: Iterable[Listener], ignored: Collection[str]) -> None:
        """`given` are whole names with their values; `ignored` are names of listeners that are not served.

        Raises ConfigError for a listener that does not exist, and for a key that no listener can have.
        """
        self._values: dict[tuple[str, str], object] = {}
        served = {each.name: each for each in listeners}
        prefixes = {each.prefix: each.name for each in served.values()}
        prefixes |= {f"{PREFIX}{name.lower()}.": "" for name in ignored}
        for name, value in given.items():
            prefix = max((each for each in prefixes if name.startswith(each)), key=len, default=None)
            if prefix is None:
                there = ", ".join(each.removeprefix(PREFIX).rstrip(".") for each in prefixes)
                raise ConfigError(f"{name}: there is no such listener; their names, in small letters, are {there}")
            if prefixes[prefix]:
                key = name.removeprefix(prefix)
                self._values[prefixes[prefix], key] = _parsed(name, key, value)
                _check_use(name, key, served[prefixes[prefix]])

    def get(self, listener: str, key: str, default: object) -> object:
        """The listener's own value, or `default`, which is the broker's."""
        return self._values.get((listener, key), default)


def _check_use(name: str, key: str, listener: Listener) -> None:
    """Whoever sets it counts on it."""
    if key in _LIMITS:
        return
    has_use = listener.protocol.has_tls if key.startswith("ssl.") else listener.protocol.has_sasl
    if not has_use:
        missing = "TLS" if key.startswith("ssl.") else "SASL"
        raise ConfigError(
            f"{name}: listener {listener.name} speaks {listener.protocol.value} (listener.security.protocol.map), "
            f"which has no {missing}"
        )


def _parsed(name: str, key: str, value: object) -> object:
    for mechanism in MECHANISMS:
        of_mechanism = key.removeprefix(f"{mechanism.lower()}.")
        if of_mechanism != key and of_mechanism in _OF_MECHANISMS:
            return _OF_MECHANISMS[of_mechanism].parse(value)
    if key == _JAAS.name:
        raise ConfigError(f"{name}: the mechanism is missing in it, as in {name.removesuffix(key)}plain.{key}")
    known = [each for each in BROKER_CONFIG.keys if each.startswith(_OWN) or each in _LIMITS]
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{name}: {key} is no setting of a listener{hint}")
    return BROKER_CONFIG.keys[key].parse(value)
