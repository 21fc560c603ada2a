"""The root of every exception Ottla raises.

    OttlaError
    ├── ConfigError        a configuration key, its value, or two keys that contradict each other
    ├── CorruptDataError   bytes that are not what Kafka's formats say (frames, batches, files)
    ├── StorageError       the data directory is missing, locked, full or unreadable
    └── (client.errors)    a broker's answer is an error, see `ottla.client.errors`

Broken invariants are not faults: `ottla.base.require` raises InvariantError, which nobody catches.
"""

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def kept(fault: E) -> E:
    """An error that is kept as a value: without its traceback, and those of the errors that have led to it.

    The frames of a traceback, and the frames that have called them, hold whatever keeps the error: a cycle, which only
    a full garbage collection frees. A broker has hardly any while clients are served (ADR 0016).
    """
    chain: list[BaseException] = [fault]
    while chain:
        each = chain.pop()
        each.__traceback__ = None
        before = (each.__cause__, each.__context__)
        chain += [other for other in before if other is not None and other.__traceback__ is not None]
    return fault


class OttlaError(Exception):
    """Any fault that Ottla reports; the message says what was wrong and what to do."""


class ConfigError(OttlaError, ValueError):
    """A configuration key or value that cannot be used."""


class CorruptDataError(OttlaError, ValueError):
    """Bytes that break Kafka's wire or disk formats."""


class StorageError(OttlaError):
    """The data directory cannot be used as it is."""
