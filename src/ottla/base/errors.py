"""The root of every exception Ottla raises.

    OttlaError
    ├── ConfigError        a configuration key, its value, or two keys that contradict each other
    ├── CorruptDataError   bytes that are not what Kafka's formats say (frames, batches, files)
    ├── StorageError       the data directory is missing, locked, full or unreadable
    └── (client.errors)    a broker's answer is an error, see `ottla.client.errors`

Broken invariants are not faults: `ottla.base.require` raises InvariantError, which nobody catches.
"""


class OttlaError(Exception):
    """Any fault that Ottla reports; the message says what was wrong and what to do."""


class ConfigError(OttlaError, ValueError):
    """A configuration key or value that cannot be used."""


class CorruptDataError(OttlaError, ValueError):
    """Bytes that break Kafka's wire or disk formats."""


class StorageError(OttlaError):
    """The data directory cannot be used as it is."""
