"""Which of the configured listeners is the one for clients, and which address clients are told.

A Kafka node with both roles also has a listener for controllers. Here one node is its own quorum, so that listener is
not served. There is one listener and it speaks PLAINTEXT. Any other setting is refused: who sets TLS relies on it.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla.base.errors import ConfigError

_MAX_PORT: Final = 65_535
#: Addresses that mean "every interface": nobody can connect to them.
EVERYWHERE: Final = ("", "0.0.0.0", "::")
#: The name of the controllers' listener when `controller.listener.names` is not set.
_CONTROLLER: Final = "CONTROLLER"


class Endpoint(NamedTuple):
    """One address; an empty host means every interface (listeners) or the machine's name (advertised)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(NamedTuple):
    """`NAME://host:port`, the name in capitals."""

    name: str
    endpoint: Endpoint


def client_listener(
    addresses: Sequence[str], protocols: str, controllers: Iterable[str], *, protocols_given: bool
) -> Listener:
    """The one listener that is for clients; ConfigError when there is none, several, or one that is not PLAINTEXT.

    `protocols` is `listener.security.protocol.map`. As in Kafka, if it is not given, the controllers' listener needs no
    entry.
    """
    spoken = _protocols(protocols)
    of_controllers = {name.upper() for name in controllers} or {_CONTROLLER}
    found = []
    for listener in map(_parse, addresses):
        if listener.name in of_controllers and (not protocols_given or listener.name in spoken):
            continue
        protocol = spoken.get(listener.name)
        if protocol is None:
            raise ConfigError(f"listeners: listener.security.protocol.map does not say what {listener.name} speaks")
        if protocol != "PLAINTEXT":
            raise ConfigError(f"listeners: {listener.name} is to speak {protocol}; only PLAINTEXT is spoken as yet")
        found.append(listener)
    if not found:
        raise ConfigError(
            f"listeners: none for clients among {', '.join(addresses)}; a controller alone has no use here: "
            "one node is broker and controller"
        )
    if len(found) > 1:
        names = " and ".join(each.name for each in found)
        raise ConfigError(f"listeners: one for clients is served as yet, got {names}")
    return found[0]


def advertised_endpoint(addresses: Sequence[str], name: str) -> Endpoint:
    """The address that clients of the listener `name` are told. ConfigError when there is none that works."""
    for listener in map(_parse, addresses):
        if listener.name != name:
            continue
        if listener.endpoint.host in EVERYWHERE[1:]:
            raise ConfigError(f"advertised.listeners: nobody can connect to {listener.endpoint.host}")
        return listener.endpoint
    raise ConfigError(f"advertised.listeners: {name} is missing among {', '.join(addresses)}")


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
