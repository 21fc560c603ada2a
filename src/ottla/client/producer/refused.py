"""Why a record was refused. This looks only after an append has failed, so that good records need no checks."""

from collections.abc import Iterable
from operator import index
from typing import SupportsIndex

_INT64_MAX = 2**63 - 1


def refused(
    topic: str,
    partition: object,
    timestamp_ms: object,
    headers: Iterable[object],
    fault: TypeError | ValueError | AttributeError | OverflowError,
) -> Exception:
    """A TypeError or ValueError that names the wrong argument of `send`; `fault` itself if no argument is wrong."""
    where = f"a record for topic {topic}"
    if partition is not None and not isinstance(partition, SupportsIndex):
        return TypeError(f"{where}: partition must be a whole number or None, not {partition!r}")
    if not isinstance(timestamp_ms, SupportsIndex):
        return TypeError(f"{where}: timestamp_ms must be whole milliseconds since the epoch, not {timestamp_ms!r}")
    if not 0 <= index(timestamp_ms) <= _INT64_MAX:
        return ValueError(f"{where}: timestamp_ms must be from 0 to {_INT64_MAX}, not {timestamp_ms}")
    for header in headers:
        if not _is_header(header):
            return TypeError(f"{where}: a header must be a pair of str and bytes (or None), not {header!r}")
    return fault


def _is_header(header: object) -> bool:
    if not isinstance(header, tuple | list) or len(header) != 2:
        return False
    name, value = header
    return isinstance(name, str) and (value is None or isinstance(value, bytes | bytearray | memoryview))
