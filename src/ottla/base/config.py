"""Configuration keys in Kafka's manner, shared by broker, topics and clients.

A `ConfigKey` says type, default and range; a `ConfigSet` parses a mapping of dotted keys. An unknown key is an error
that names the nearest known one; a bad value is an error that says what would be accepted.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ottla.base.errors import ConfigError
from ottla.base.limits import MAX_STRING_BYTES


class ConfigType(Enum):
    """Kafka's ConfigDef types, as far as Ottla uses them."""

    BOOLEAN = "boolean"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    #: A text that is never shown.
    PASSWORD = "password"
    LIST = "list"
    #: The name of a Java class.
    CLASS = "class"
    #: Any Python object: a class or a callable (serializers, assignors, partitioners).
    OBJECT = "object"


#: Returns None when the value is good, else what a good value must be ("must be at least 0").
Validator = Callable[[object], str | None]


def between(low: float | None = None, high: float | None = None) -> Validator:
    """Accept numbers from `low` to `high`, both included."""

    def check(value: object) -> str | None:
        if low is not None and value < low:  # type: ignore[operator]
            return f"must be at least {low}"
        if high is not None and value > high:  # type: ignore[operator]
            return f"must be at most {high}"
        return None

    return check


def one_of(*choices: str, any_case: bool = False) -> Validator:
    """Accept one of `choices`; with `any_case` in upper or lower case."""
    accepted = {choice.upper() for choice in choices} if any_case else set(choices)

    def check(value: object) -> str | None:
        word = str(value).upper() if any_case else value
        return None if word in accepted else f"must be one of: {', '.join(choices)}"

    return check


def each_of(*choices: str) -> Validator:
    """Accept lists of any of `choices`."""

    def check(value: object) -> str | None:
        good = isinstance(value, tuple) and all(word in choices for word in value)
        return None if good else f"must be some of: {', '.join(choices)}"

    return check


def not_empty(value: object) -> str | None:
    """Accept strings and lists with something in them."""
    return None if value else "must not be empty"


_NO_UTF_8 = "must be text that UTF-8 can write"


def _is_utf_8(text: str) -> bool:
    """False where it holds a byte of the command line or the environment, or half of a pair of surrogates.

    The error that says so holds the text, which may be a secret: it must not leave this function.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def sendable(value: object) -> str | None:
    """Accept texts that a request can carry: else the client would only see that its connection is cut."""
    if not _is_utf_8(text := str(value)):
        return _NO_UTF_8
    size = len(text.encode())
    if size <= MAX_STRING_BYTES:
        return None
    return f"must take at most {MAX_STRING_BYTES} bytes in UTF-8, and takes {size}"


def sendable_name(value: object) -> str | None:
    """Accept texts with something in them that a request can carry."""
    return not_empty(value) or sendable(value)


#: How every text in PEM begins, private keys, too.
_PEM = "-----BEGIN"


def pem_file(value: object) -> str | None:
    """Accept names of files, and not the text of one."""
    return (
        "is the name of a file, and this is what is in one: another key takes the text" if _PEM in str(value) else None
    )


class _Required(Enum):
    REQUIRED = "required"


#: Stands for the default of a key that has none: the key must be given.
REQUIRED = _Required.REQUIRED


class Standing(Enum):
    """Whether a key's value has an effect."""

    IN_FORCE = "in force"
    #: Accepted and checked, but without effect.
    WITHOUT_EFFECT = "accepted, without effect"
    #: A value other than the default is refused: to ignore it would break a promise. `doc` says why.
    DEFAULT_ONLY = "only the default"


_RANGES = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), 2**31 - 1),
    ConfigType.LONG: (-(2**63), 2**63 - 1),
}
_TRUE, _FALSE = ("true",), ("false",)
#: Numbers as Java reads them: no underscores. Whole numbers may use the digits of other scripts.
_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One configuration key: Kafka's name, type, default, accepted values, and what it does."""

    name: str
    type: ConfigType
    default: object
    doc: str = ""
    validator: Validator | None = None
    #: Other names accepted for the same setting (a broker's `log.retention.hours` beside `log.retention.ms`).
    synonyms: tuple[str, ...] = ()
    sensitive: bool = False
    #: Kafka's "internal" keys: accepted, but not shown by DescribeConfigs.
    internal: bool = False
    standing: Standing = Standing.IN_FORCE

    def parse(self, value: object) -> object:
        """Convert `value` (a string from a file, or a Python value) to the key's type, or raise ConfigError.

        None is good only where it is the default: Kafka's range checks refuse it, too.
        """
        if value is None and self.default is not None:
            raise ConfigError(self._problem(value, "must not be null: leave it out, and the default is taken"))
        if self.type is ConfigType.LIST and _has_empty_name(value):
            raise ConfigError(self._problem(value, "a name in the list is empty: take the comma beside it away"))
        try:
            parsed = convert(self.type, value)
        except (TypeError, ValueError):
            raise ConfigError(self._problem(value, f"expected {self._expected()}")) from None
        low_high = _RANGES.get(self.type)
        problem = between(*low_high)(parsed) if low_high and parsed is not None else None
        if self.type is ConfigType.PASSWORD and not _is_utf_8(str(parsed)):
            problem = _NO_UTF_8
        if problem is None and self.validator is not None and parsed is not None:
            problem = self.validator(parsed)
            if problem is not None and self.standing is Standing.WITHOUT_EFFECT:
                problem = f"{problem} ({self.doc})"
        if problem is None and self.standing is Standing.DEFAULT_ONLY and parsed != self.default:
            problem = f"only the default is accepted: {self.doc}"
        if problem is not None:
            raise ConfigError(self._problem(value, problem))
        return parsed

    def _problem(self, value: object, what: str) -> str:
        shown = "" if self.sensitive or _PEM in str(value) else f" {value!r}"
        return f"Invalid value{shown} for configuration {self.name}: {what}"

    def _expected(self) -> str:
        names = {
            ConfigType.BOOLEAN: "true or false",
            ConfigType.SHORT: "a whole number of 16 bits",
            ConfigType.INT: "a whole number of 32 bits",
            ConfigType.LONG: "a whole number of 64 bits",
            ConfigType.DOUBLE: "a number",
            ConfigType.LIST: "a list, or names separated by commas",
        }
        return names.get(self.type, f"a {self.type.value}")


def convert(kind: ConfigType, value: object) -> object:
    """`value`, which may be a text from a file, in the key's type. TypeError or ValueError when it does not fit."""
    if value is None or kind is ConfigType.OBJECT:
        return value
    text = value.strip() if isinstance(value, str) else value
    match kind:
        case ConfigType.BOOLEAN:
            return _to_bool(text)
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            return _to_int(text)
        case ConfigType.DOUBLE:
            return _to_float(text)
        case ConfigType.LIST:
            return _to_list(text)
        case _:
            if not isinstance(text, str):
                raise TypeError
            return text


def _has_empty_name(value: object) -> bool:
    """Whether one of several names is empty. Of an empty text the validator says whether no name will do."""
    if isinstance(value, str):
        return bool(value.strip()) and not all(part.strip() for part in value.split(","))
    return isinstance(value, list | tuple) and any(isinstance(each, str) and not each.strip() for each in value)


def _to_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError


def _to_int(value: object) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise TypeError
    if isinstance(value, str) and _WHOLE.fullmatch(value) is None:
        raise ValueError
    return int(value)  # type: ignore[call-overload, no-any-return]


def _to_float(value: object) -> float:
    if isinstance(value, bool):
        raise TypeError
    if isinstance(value, str) and _DECIMAL.fullmatch(value) is None:
        raise ValueError
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise ValueError
    return number


def _to_list(value: object) -> tuple[object, ...]:
    if isinstance(value, str):
        # A name that is given twice counts once, as in Kafka. `ConfigKey.parse` refuses empty names, as Kafka does.
        return tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if isinstance(value, Iterable):
        return tuple(value)
    raise TypeError


def mapping_of(given: object) -> Mapping[str, object]:
    """`given`, if it is a configuration. ConfigError for anything but keys and values."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"a configuration is a dict of keys and values, not a {type(given).__name__}")
    return given


@dataclass(frozen=True, slots=True)
class ConfigSet:
    """All keys of a broker, a topic, a producer or the like, by name."""

    what: str
    keys: Mapping[str, ConfigKey] = field(default_factory=dict)

    @classmethod
    def of(cls, what: str, keys: Iterable[ConfigKey]) -> "ConfigSet":
        """Build a set, refusing two keys of one name."""
        by_name: dict[str, ConfigKey] = {}
        for key in keys:
            if key.name in by_name:
                raise ValueError(f"{what}: {key.name} is defined twice")
            by_name[key.name] = key
        return cls(what, by_name)

    def find(self, name: str) -> ConfigKey:
        """The key called `name`, or a ConfigError that names the nearest one."""
        key = self.keys.get(name)
        if key is None:
            raise ConfigError(self.unknown(name))
        return key

    def unknown(self, name: str) -> str:
        """The sentence for a key that does not exist."""
        near = difflib.get_close_matches(name, self.keys, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        shown = " ".join(name.split()[:1])  # no key has a blank: what is behind it may be the value, and a secret
        return f"Unknown {self.what} configuration {shown}{hint}"

    def parse(self, given: Mapping[str, object]) -> dict[str, object]:
        """Every key's value: the given one, converted and checked, else the default.

        Raises ConfigError for an unknown key, a bad value, or a required key that is missing.
        """
        given = mapping_of(given)
        values: dict[str, object] = {}
        for name, value in given.items():
            values[name] = self.find(name).parse(value)
        for name, key in self.keys.items():
            if name not in values:
                if key.default is REQUIRED:
                    raise ConfigError(
                        f"Missing required {self.what} configuration {name}: {key.doc or 'it has no default'}"
                    )
                values[name] = key.default
        return values
