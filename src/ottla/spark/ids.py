"""The names that are Ottla's own: the transactional ids of exactly-once sinks, and the topics of ledgers. Pure.

    __ottla/SINK/driver              the driver's
    __ottla/SINK/slot-N              slot N's
    __ottla/SINK/slot-N/attempt-M    slot N's in the second and later attempts, with Spark's speculation

A producer that initialises a transactional id fences the former holder of that id. So a sink's ids must differ from
those of every application and every other sink. The prefix `__ottla/` is reserved for Ottla, as Kafka reserves `__` for
its own topics. A sink's id has no `/`, so the text between the first and the second `/` is the whole id.

Before 0.1.0 the ids had no prefix: `SINK-driver`, `SINK-N` and `SINK-N.M`. A claim looks for these only
if the ledger has a record of a sink with such ids that is newer than the last decision under today's ids.
"""

from hashlib import sha256
from typing import Final

#: What all ids of ours begin with. An ACL of the type PREFIXED can name it, or `__ottla/SINK/` for one sink.
PREFIX: Final = "__ottla/"
#: What the names of our own topics begin with (a topic's name has no slash). No pattern of the source means them: a
#: query that read the ledger which it writes would never come to an end.
TOPIC_PREFIX: Final = "__ottla_"


def driver_id(sink: str) -> str:
    """The transactional id of the driver's own transactions."""
    return f"{PREFIX}{sink}/driver"


def slot_id(sink: str, slot: int, attempt: int = 0) -> str:
    """The transactional id of a slot. With Spark's speculation each attempt at the slot has an id of its own."""
    return f"{PREFIX}{sink}/slot-{slot}" + (f"/attempt-{attempt}" if attempt else "")


def staging_topic(sink: str) -> str:
    """The topic where tasks of `sink` put rows aside, with `atomicity=batch`."""
    return f"{TOPIC_PREFIX}staging.{sink}"


def other_staging_topic(sink: str) -> str:
    """... where that name is taken: to Kafka names that differ in `.` and `_` alone are one, and to sinks they are not.

    What holds a right by the beginning of the name has it here, too.
    """
    return f"{staging_topic(sink)}-{sha256(sink.encode()).hexdigest()[:16]}"


def slot_of(transactional_id: str) -> int:
    """The slot of one of these ids, and of every attempt at it."""
    return int(transactional_id.removeprefix(PREFIX).split("/")[1].removeprefix("slot-"))


def slot_pattern(sink: str) -> str:
    """A regular expression for all slot ids of `sink` and no other id. re2 and Python understand it alike."""
    return f"^{PREFIX}{_quoted(sink)}/slot-[0-9]+(/attempt-[0-9]+)?$"


def former_driver_id(sink: str) -> str:
    """The driver's id in the form without a prefix."""
    return f"{sink}-driver"


def former_slot_pattern(sink: str) -> str:
    """A regular expression for the slot ids of `sink` in the form without a prefix."""
    return f"^{_quoted(sink)}-[0-9]+([.][0-9]+)?$"


def _quoted(sink: str) -> str:
    """The sink's id for a regular expression. Of the characters it may hold, only the dot has a meaning there."""
    return sink.replace(".", "[.]")
