"""Which of the configured listeners are for clients, what they speak, and which address their clients are told.

A Kafka node with both roles also has a listener for controllers. Here one node is its own quorum, so that listener is
not served. Every other one is: each has a name, and a security protocol (`listener.security.protocol.map`).
"""

import ipaddress
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ottla.base.errors import ConfigError

_MAX_PORT: Final = 65_535
#: Addresses that mean "every interface": nobody can connect to them.
EVERYWHERE: Final = ("", "0.0.0.0", "::")
#: The name of the controllers' listener when `controller.listener.names` is not set.
_CONTROLLER: Final = "CONTROLLER"


class SecurityProtocol(Enum):
    """What a listener speaks (Kafka's `SecurityProtocol`)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients say who they are before anything else."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Endpoint(NamedTuple):
    """One address; an empty host means every interface (listeners) or the machine's name (advertised)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


class Listener(NamedTuple):
    """`NAME://host:port`, the name in capitals; what it speaks; what its clients are told, if that was set."""

    name: str
    endpoint: Endpoint
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    advertised: Endpoint | None = None

    @property
    def prefix(self) -> str:
        """How keys begin that are for this listener alone (`listener.name.internal.`)."""
        return f"listener.name.{self.name.lower()}."


def client_listeners(
    addresses: Sequence[str], advertised: Sequence[str], protocols: str, controllers: Iterable[str], *, is_given: bool
) -> tuple[Listener, ...]:
    """The listeners that are for clients, in their order; ConfigError when there is none, or one that cannot work.

    `protocols` is `listener.security.protocol.map`. As in Kafka, if it is not given (`is_given`), the controllers'
    listener needs no entry.
    """
    spoken = _protocols(protocols)
    of_controllers = {name.upper() for name in controllers} or {_CONTROLLER}
    found: dict[str, Listener] = {}
    for listener in map(_parse, addresses):
        if listener.name in of_controllers and (not is_given or listener.name in spoken):
            continue
        if listener.name in found:
            raise ConfigError(f"listeners: {listener.name} is named twice: each listener has a name of its own")
        found[listener.name] = listener._replace(protocol=_protocol(listener.name, spoken))
    if not found:
        raise ConfigError(
            f"listeners: none for clients among {', '.join(addresses)}; a controller alone has no use here: "
            "one node is broker and controller"
        )
    _check_addresses(found.values())
    if advertised:
        told = _advertised(advertised, found, of_controllers)
        return tuple(each._replace(advertised=told[each.name]) for each in found.values())
    return tuple(found.values())


def _protocol(name: str, spoken: dict[str, str]) -> SecurityProtocol:
    text = spoken.get(name)
    if text is None:
        raise ConfigError(f"listeners: listener.security.protocol.map does not say what {name} speaks")
    try:
        return SecurityProtocol(text)
    except ValueError:
        names = ", ".join(each.value for each in SecurityProtocol)
        raise ConfigError(f"listeners: {name} is to speak {text}; there are {names}") from None


def _check_addresses(listeners: Iterable[Listener]) -> None:
    taken: dict[Endpoint, str] = {}
    for name, endpoint, *_ in listeners:
        if endpoint.port and endpoint in taken:
            raise ConfigError(f"listeners: {taken[endpoint]} and {name} are both on {endpoint}")
        taken[endpoint] = name


def _advertised(
    addresses: Sequence[str], listeners: Iterable[str], of_controllers: Iterable[str]
) -> dict[str, Endpoint]:
    """The address that clients of each listener are told."""
    told = {}
    for name, endpoint, *_ in map(_parse, addresses):
        if endpoint.host in EVERYWHERE[1:]:
            raise ConfigError(f"advertised.listeners: nobody can connect to {endpoint.host}")
        if name not in listeners and name not in of_controllers:
            raise ConfigError(f"advertised.listeners: there is no {name} among listeners")
        told[name] = endpoint
    for name in listeners:
        if name not in told:
            raise ConfigError(f"advertised.listeners: {name} is missing among {', '.join(addresses)}")
    return told


def _protocols(text: str) -> dict[str, str]:
    spoken = {}
    for part in text.split(","):
        name, colon, protocol = part.strip().partition(":")
        if part.strip() and not (colon and name and protocol):
            raise ConfigError(f"listener.security.protocol.map {text!r}: expected NAME:PROTOCOL, separated by commas")
        spoken[name.upper()] = protocol.upper()
    return spoken


def _parse(address: str) -> Listener:
    name, separator, rest = address.partition("://")
    if not separator or not name:
        raise ConfigError(f"listener {address!r}: expected NAME://host:port, as in PLAINTEXT://127.0.0.1:9092")
    host, colon, port = rest.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > _MAX_PORT:
        raise ConfigError(f"listener {address!r}: expected a port from 0 to {_MAX_PORT} after the host")
    return Listener(name.upper(), Endpoint(host.strip("[]"), int(port)))
