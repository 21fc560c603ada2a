"""The broker's configuration: from a properties file, the environment and the command line, later ones winning."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.base.config import ConfigSet
from ottla.base.errors import ConfigError
from ottla.broker.config_keys import BROKER_CONFIG

#: `OTTLA_LOG_RETENTION_MS=1000` sets `log.retention.ms`. Names reserved for other uses are not read as keys.
ENVIRONMENT_PREFIX = "OTTLA_"
_NOT_KEYS = frozenset({"OTTLA_BOOTSTRAP", "OTTLA_EXPLORE", "OTTLA_INTERPRETED", "OTTLA_FAULT", "OTTLA_FAULT_DIR"})

#: Other spellings of keys (`broker.id`, `log.dir`).
_SPELLINGS = {name: key.name for key in BROKER_CONFIG.keys.values() for name in key.synonyms}


class Endpoint(NamedTuple):
    """One PLAINTEXT address; an empty host means every interface (listeners) or the machine's name (advertised)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BrokerConfig:
    """Checked values of every broker key; `given` names those that somebody set (DescribeConfigs' source)."""

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        given = _canonical(given or {})
        self.given = frozenset(given)
        self._values = BROKER_CONFIG.parse(given)
        self.listener = _listener(self.list("listeners"))
        advertised = self._values["advertised.listeners"]
        self.advertised = None if advertised is None else _listener(self.list("advertised.listeners"))
        dirs = self.list("log.dirs")
        if len(dirs) != 1:
            raise ConfigError(f"log.dirs: exactly one directory is supported, got {', '.join(dirs)}")
        self.data_dir = Path(dirs[0])
        if self.int("group.min.session.timeout.ms") > self.int("group.max.session.timeout.ms"):
            raise ConfigError("group.min.session.timeout.ms is above group.max.session.timeout.ms")

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    # A key's value, by its type; a key that does not exist is a KeyError. Units are in the keys' names.

    def int(self, name: str) -> int:
        """A whole number that has a value."""
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def float(self, name: str) -> float:
        """A number that has a value."""
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
        """A list that has a value."""
        value = self._values[name]
        assert isinstance(value, tuple), name
        return tuple(str(each) for each in value)


def _canonical(given: Mapping[str, object]) -> dict[str, object]:
    """Replace other spellings by the key's own name."""
    return {_SPELLINGS.get(name, name): value for name, value in given.items()}


def _listener(addresses: Iterable[str]) -> Endpoint:
    for address in addresses:
        scheme, separator, rest = address.partition("://")
        if not separator:
            raise ConfigError(f"listener {address!r}: expected PLAINTEXT://host:port")
        if scheme.upper() != "PLAINTEXT":
            continue
        host, colon, port = rest.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65_535:
            raise ConfigError(f"listener {address!r}: expected a port from 0 to 65535 after the host")
        return Endpoint(host.strip("[]"), int(port))
    raise ConfigError(f"no PLAINTEXT listener among: {', '.join(addresses)}")


def from_environment(environ: Mapping[str, str], keys: ConfigSet = BROKER_CONFIG) -> dict[str, object]:
    """Keys given as OTTLA_ variables; a variable that is no key's is refused with the nearest name."""
    found: dict[str, object] = {}
    for name, value in environ.items():
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _NOT_KEYS:
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
            found[keys.find(_SPELLINGS.get(key, key)).name] = value
    return found


def from_file(path: Path) -> dict[str, object]:
    """Read a Java properties file: `key=value` or `key: value` lines, # and ! comments, `\\` continuations."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as fault:
        raise ConfigError(f"cannot read {path}: {fault.strerror}") from None
    except UnicodeDecodeError as fault:
        raise ConfigError(f"cannot read {path}: byte {fault.start} is not UTF-8") from None
    found: dict[str, object] = {}
    for number, line in _logical_lines(text):
        cut = min((at for at in (line.find("="), line.find(":")) if at >= 0), default=-1)
        if cut < 1:
            raise ConfigError(f"{path}:{number}: expected key=value, got {line!r}")
        found[line[:cut].strip()] = line[cut + 1 :].strip()
    return found


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    pending, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not pending and (not line or line[0] in "#!"):
            continue
        first = first if pending else number
        if line.endswith("\\"):
            pending += line[:-1]
            continue
        yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def from_options(options: Iterable[str]) -> dict[str, object]:
    """`-o key=value` arguments."""
    found: dict[str, object] = {}
    for option in options:
        key, separator, value = option.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"-o {option!r}: expected key=value")
        found[key.strip()] = value.strip()
    return found
