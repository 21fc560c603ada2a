"""Long lists in a record of the ledger, as short text. Pure."""

import json
import zlib
from base64 import b64decode, b64encode
from typing import Any, Final

#: More than a list has ever been: what says more is damaged.
_MOST_BYTES: Final = 67_108_864


def packed(values: list[Any]) -> str:
    """A list that JSON can hold. Of a decision's slots it is a quarter of that: their ids are alike."""
    return b64encode(zlib.compress(json.dumps(values, separators=(",", ":")).encode())).decode()


def unpacked(text: str) -> list[Any]:
    """The reverse. Raises ValueError."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(b64decode(text, validate=True), _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"damaged: {error}") from error
    if not unpacking.eof:
        raise ValueError("it does not end")
    values: list[Any] = json.loads(plain)
    return values
