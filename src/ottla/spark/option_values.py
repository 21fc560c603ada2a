"""Options whose values have a form of their own: offsets and partitions as JSON, and times with a unit. Pure."""

import json
import re

from ottla.base.digits import natural
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.spark.bounds import EARLIEST
from ottla.spark.plan import Offsets, offsets_from_json, whole

#: Offsets and times of Kafka have 64 bits.
_MOST = 2**63 - 1
#: Characters of a wrong value that an error shows.
_SHOWN = 200
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}


def json_offsets(option: str, text: str, least: int) -> Offsets:
    """Offsets or times, none of them below `least`."""
    example = '{"topic":{"0":23,"1":-2}}' if least == EARLIEST else '{"topic":{"0":23,"1":1500}}'
    try:
        offsets = offsets_from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f"{option}: expected JSON like {example}, not {text[:_SHOWN]}") from None
    for tp, offset in offsets.items():
        if offset < least:
            raise ConfigError(f"{option}: {offset} for {tp} is below {least}")
        if offset > _MOST:
            raise ConfigError(f"{option}: {offset} for {tp} is above {_MOST}, the last one of Kafka")
    return offsets


def assigned(value: object) -> tuple[TopicPartition, ...]:
    """The partitions of the option `assign`; none if it is not given."""
    if value is None:
        return ()
    try:
        found = {TopicPartition(t, whole(p)) for t, ps in json.loads(str(value)).items() for p in ps}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f'assign: expected JSON like {{"topic":[0,1]}}, not {str(value)[:_SHOWN]}') from None
    if not found:
        raise ConfigError("assign names no partition")
    return tuple(sorted(found))


def duration_ms(option: str, text: str) -> int:
    """Milliseconds of `15m`, `10s`, `500ms`… Raises ConfigError."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    number = natural(found[1]) if found is not None and found[2] in _UNITS_MS else None
    if found is None or number is None:
        raise ConfigError(f"{option}: expected a time like 15m, 10s or 500ms, not {text}")
    return number * _UNITS_MS[found[2]]
