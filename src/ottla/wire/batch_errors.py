"""What can be wrong with a record batch.

    CorruptDataError
    └── CorruptBatchError               size, CRC, a record that does not parse         CORRUPT_MESSAGE
        ├── InvalidRecordError          readable, but not what a producer may send      INVALID_RECORD
        ├── UnsupportedMagicError       a message set of magic 0 or 1, from before 0.11 UNSUPPORTED_FOR_MESSAGE_FORMAT
        ├── UnsupportedCompressionError a codec number that Kafka does not define       UNSUPPORTED_COMPRESSION_TYPE
        └── BatchTooLargeError          more bytes than `max.message.bytes` allows      MESSAGE_TOO_LARGE

Each class names the code Kafka answers for it, so that a handler needs no table.
"""

from typing import ClassVar

from ottla.base.errors import CorruptDataError


class CorruptBatchError(CorruptDataError):
    """Bytes that are not a whole, undamaged record batch. The message says what was found and where."""

    #: Kafka's error code for this fault (`ottla.wire.errors.ErrorCode`).
    error_code: ClassVar[int] = 2


class InvalidRecordError(CorruptBatchError):
    """A batch that is undamaged but whose counts, sequence or flags no producer may send."""

    error_code: ClassVar[int] = 87


class UnsupportedMagicError(CorruptBatchError):
    """A message set of magic 0 or 1 (or an unknown later magic). Kafka 4 dropped these formats (KIP-724)."""

    error_code: ClassVar[int] = 43


class UnsupportedCompressionError(CorruptBatchError):
    """A compression number in the attributes that Kafka does not define."""

    error_code: ClassVar[int] = 76


class BatchTooLargeError(CorruptBatchError):
    """A batch larger than the topic's `max.message.bytes`, or whose records take more than may be decompressed."""

    error_code: ClassVar[int] = 10
