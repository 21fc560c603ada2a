"""Messages with something in every array."""

from __future__ import annotations

from typing import Any

from ottla.wire.schema import schema

_BARE = {"string": "x"}


def sample(kind: type[Any], version: int) -> Any:
    """A message whose arrays have an item each, where the version has them; all else is as by default."""
    said = {
        field.name: (_item(field.type[0], version),)
        for field in schema(kind).fields
        if isinstance(field.type, list) and field.first <= version <= field.last
    }
    return kind(**said)


def _item(type_: Any, version: int) -> Any:
    return _BARE.get(type_, 0) if isinstance(type_, str) else sample(type_, version)
