"""A client's properties file as options of `format("ottla")`: no script has to hold a password."""

from pathlib import Path

from ottla.base.config import ConfigType
from ottla.base.errors import ConfigError
from ottla.base.properties import read_properties
from ottla.client.config import COMMON_KEYS
from ottla.client.config.consumer import CONSUMER_CONFIG
from ottla.client.config.producer import PRODUCER_CONFIG

_SHARED = frozenset(key.name for key in COMMON_KEYS if key.type is not ConfigType.OBJECT)


def kafka_options(path: Path | str) -> dict[str, str]:
    """What the properties file says of brokers, TLS, SASL and every client, as `kafka.` options for source and sink.

    Keys of consumers or producers alone do not count: a query has its own options for what they say. Raises ConfigError
    when the file cannot be read, or has a key that no client has.
    """
    path = Path(path)
    options = {}
    for name, value in read_properties(path).items():
        if name not in CONSUMER_CONFIG.keys and name not in PRODUCER_CONFIG.keys:
            raise ConfigError(f"{path}: {CONSUMER_CONFIG.unknown(name)}")
        if name in _SHARED:
            options[f"kafka.{name}"] = str(value)
    return options
