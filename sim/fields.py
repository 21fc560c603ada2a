"""The simulator reads its own JSON files: a field is what it has to be, or a sentence says what is wrong."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")


class FieldError(Exception):
    """A field is not there, or is not what it has to be."""


def document(path: Path) -> Any:
    """The JSON of a file. OSError when it cannot be read, FieldError when it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise FieldError("it is not JSON") from None


def field(content: Mapping[str, Any], name: str, read: Callable[[Any], _T]) -> _T:
    """A field by one of the readers below. FieldError."""
    if name not in content:
        raise FieldError(f"it has no {name!r}")
    try:
        return read(content[name])
    except FieldError as wrong:
        raise FieldError(f"{name!r} has to be {wrong}") from None


# readers: a value, or a FieldError that says what it has to be


def whole(value: Any) -> int:
    """A whole number."""
    if type(value) is not int:
        raise FieldError("a whole number")
    return value


def count(value: Any) -> int:
    """A whole number that is not below 0."""
    if type(value) is not int or value < 0:
        raise FieldError("a whole number, 0 or more")
    return value


def seconds(value: Any) -> float:
    """A time."""
    try:
        if type(value) in (int, float) and 0 <= value < float("inf"):
            return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        pass
    raise FieldError("a number of seconds, 0 or more")


def text(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise FieldError("a text")
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise FieldError("an object, in braces")
    return value


def one_of(kind: Callable[[str], _T]) -> Callable[[Any], _T]:
    """A member of an Enum, by its value."""

    def read(value: Any) -> _T:
        try:
            return kind(value)
        except ValueError:
            raise FieldError(f"a kind of world, not {value!r}") from None

    return read


def optional(read: Callable[[Any], _T]) -> Callable[[Any], _T | None]:
    """Null, or else this."""
    return lambda value: None if value is None else read(value)


def list_of(read: Callable[[Any], _T]) -> Callable[[Any], list[_T]]:
    """A list of these."""

    def each(value: Any) -> list[_T]:
        if not isinstance(value, list):
            raise FieldError("a list")
        try:
            return [read(one) for one in value]
        except FieldError as wrong:
            raise FieldError(f"a list, of which each is {wrong}") from None

    return each
