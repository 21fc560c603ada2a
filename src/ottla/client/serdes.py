"""Serializers and deserializers (SPEC C2): a callable, or an object (or class) with `serialize` / `deserialize`.

    Producer({..., "value.serializer": lambda topic, data: json.dumps(data).encode()})

Both are called with the topic and the datum. Whatever they raise becomes a SerializationError. It names the topic, and
for a record that was read also its partition and offset.
"""

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ConfigError
from ottla.client.errors import SerializationError

Serializer = Callable[[str, Any], bytes | None]
Deserializer = Callable[[str, bytes | None], Any]
#: What `bytes` makes bytes of; a subclass of `bytes`, as numpy has one, is none that a record takes.
_BYTES_LIKE = (bytes, bytearray, memoryview)


def serializer(key: str, given: object) -> Serializer | None:
    """The serializer configured under `key`; None if the user gives bytes."""
    return _callable(key, given, "serialize")


def deserializer(key: str, given: object) -> Deserializer | None:
    """The deserializer configured under `key`; None if the user wants bytes."""
    return _callable(key, given, "deserialize")


def _callable(key: str, given: object, method: str) -> Callable[[str, Any], Any] | None:
    if given is None:
        return None
    made = given() if isinstance(given, type) else given
    found = getattr(made, method, None) or made
    if not callable(found):
        raise ConfigError(f"Invalid value {given!r} for configuration {key}: expected a callable or {method}()")
    return found  # type: ignore[no-any-return]


def serialize(how: Serializer | None, topic: str, what: str, datum: Any) -> bytes | None:
    """Turn `datum` into bytes. Raises SerializationError."""
    if how is None:
        if isinstance(datum, _BYTES_LIKE):
            return bytes(datum)
        if datum is None:
            return None
        raise SerializationError(
            f"topic {topic}: the {what} is a {type(datum).__name__}: configure a {what}.serializer, or give bytes"
        )
    try:
        made: object = how(topic, datum)
    except Exception as error:  # whatever a user's serializer raises
        raise SerializationError(f"topic {topic}: the {what} could not be serialized: {error}") from error
    if isinstance(made, _BYTES_LIKE):
        return bytes(made)
    if made is None:
        return None
    raise SerializationError(f"topic {topic}: the {what}.serializer returned a {type(made).__name__}, not bytes")
