"""The five compressions of record batches (`compression.type`), over cramjam."""

from enum import IntEnum


class Compression(IntEnum):
    """Kafka's numbers, as in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
