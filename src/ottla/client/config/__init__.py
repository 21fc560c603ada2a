"""Configuration keys that every client has, and how the user's mapping becomes a typed, frozen object.

Names, defaults and ranges are Kafka's (clients 4.3). A field of a config class is named like its key, with underscores
for dots.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from ottla.base.config import REQUIRED, ConfigKey, ConfigSet, ConfigType, Standing, between, not_empty, one_of, sendable
from ottla.base.digits import natural
from ottla.base.errors import ConfigError
from ottla.client.config import accepted
from ottla.client.config.security import SECURITY_KEYS, Security, security_of

_AT_LEAST_0 = between(0)

COMMON_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("bootstrap.servers", ConfigType.LIST, REQUIRED, "Brokers to connect to first, host:port", not_empty),
    ConfigKey("client.id", ConfigType.STRING, "", "Name of this client in the broker's logs and quotas", sendable),
    ConfigKey("request.timeout.ms", ConfigType.INT, 30_000, "Longest wait for one answer", _AT_LEAST_0),
    ConfigKey("retry.backoff.ms", ConfigType.LONG, 100, "First pause before a request is repeated", _AT_LEAST_0),
    ConfigKey("retry.backoff.max.ms", ConfigType.LONG, 1_000, "Longest pause before a repetition", _AT_LEAST_0),
    ConfigKey("reconnect.backoff.ms", ConfigType.LONG, 50, "First pause after a failed connect", _AT_LEAST_0),
    ConfigKey("reconnect.backoff.max.ms", ConfigType.LONG, 1_000, "Longest pause after a failed connect", _AT_LEAST_0),
    ConfigKey("socket.connection.setup.timeout.ms", ConfigType.LONG, 10_000, "Longest time for a connect", _AT_LEAST_0),
    ConfigKey(
        "connections.max.idle.ms",
        ConfigType.LONG,
        540_000,
        "A connection is closed after being unused for so long; -1: never",
        between(-1),
    ),
    ConfigKey("metadata.max.age.ms", ConfigType.LONG, 300_000, "Metadata is requested again after this", _AT_LEAST_0),
    ConfigKey(
        "metadata.recovery.strategy",
        ConfigType.STRING,
        "rebootstrap",
        "What to do when no known broker can be reached (KIP-899)",
        one_of("none", "rebootstrap"),
    ),
    ConfigKey(
        "metadata.recovery.rebootstrap.trigger.ms",
        ConfigType.LONG,
        300_000,
        "KIP-1102; this client tries bootstrap.servers as soon as no known broker answers",
        _AT_LEAST_0,
        standing=Standing.WITHOUT_EFFECT,
    ),
    ConfigKey(
        "client.dns.lookup",
        ConfigType.STRING,
        "use_all_dns_ips",
        "all addresses of a name are tried",
        one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        standing=Standing.DEFAULT_ONLY,
    ),
    *SECURITY_KEYS,
    *accepted.COMMON,
)


@dataclass(frozen=True, slots=True)
class CommonConfig:
    """The keys that connections and metadata use. Times are milliseconds."""

    bootstrap_servers: tuple[str, ...]
    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    security: Security

    def bootstrap_addresses(self) -> list[tuple[str, int]]:
        """`bootstrap.servers` as (host, port). Raises ConfigError for an entry that is not host:port."""
        return [_address(server) for server in self.bootstrap_servers]


ConfigT = TypeVar("ConfigT", bound=CommonConfig)


#: As a Java client takes it (`Utils.getHost`): what stands before `://`, a listener's name or a protocol, says nothing.
_ADDRESS: Final = re.compile(r"(?:[0-9A-Za-z%._-]*://)?\[?([0-9A-Za-z%._:-]+)\]?:([0-9]+)")


def _address(server: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(str(server))
    port = found and natural(found[2], 65_535)
    if not found or not port:
        raise ConfigError(f"Invalid url in bootstrap.servers: {server} (host:port is expected)")
    return found[1], port


def client_keys(what: str, keys: Iterable[ConfigKey]) -> ConfigSet:
    """The common keys and the given ones. A given key replaces a common one of the same name."""
    own = {key.name: key for key in keys}
    return ConfigSet.of(what, [*(key for key in COMMON_KEYS if key.name not in own), *own.values()])


def build(cls: type[ConfigT], config_set: ConfigSet, given: Mapping[str, object], **overrides: Any) -> ConfigT:
    """Parse `given` into `cls`. `overrides` are values of fields, and replace what is given. Raises ConfigError."""
    parsed = config_set.parse(given)
    values: dict[str, Any] = {name.replace(".", "_").replace("-", "_"): value for name, value in parsed.items()}
    values["security"] = security_of(parsed)
    values.update(overrides)
    config = cls(**{f.name: values[f.name] for f in fields(cls)})
    config.bootstrap_addresses()
    return config
