"""XXH3, 64 bits, seed 0: by this hash Apache Kafka 4.1 and later see that a group's topics have changed (KIP-1101)."""

from __future__ import annotations

from xxhash import xxh3_64_digest


def xxh3_64(data: bytes) -> int:
    """The hash of `data` as a signed number of 64 bits, as Java has it."""
    return int.from_bytes(xxh3_64_digest(data), "big", signed=True)
