"""The admin client's configuration keys: Kafka's names, defaults and ranges."""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.base.config import ConfigKey, ConfigType, Standing, between
from ottla.client.config import CommonConfig, accepted, build, client_keys

ADMIN_CONFIG = client_keys(
    "admin client",
    (
        ConfigKey("default.api.timeout.ms", ConfigType.INT, 60_000, "Longest time of one call", between(0)),
        ConfigKey(
            "retries",
            ConfigType.INT,
            2**31 - 1,
            "Only default.api.timeout.ms limits the repetitions",
            between(0),
            standing=Standing.WITHOUT_EFFECT,
        ),
        *accepted.ADMIN,
    ),
)


@dataclass(frozen=True, slots=True)
class AdminConfig(CommonConfig):
    """A checked admin configuration. Times are milliseconds."""

    default_api_timeout_ms: int
    retries: int


def admin_config(given: Mapping[str, object]) -> AdminConfig:
    """Parse and check `given`. Raises ConfigError for an unknown key or a bad value."""
    return build(AdminConfig, ADMIN_CONFIG, given)
