"""Kafka's two hashes: where a key goes, and which partition a coordinator is.

One of the compiled modules: a keyed producer hashes every record.
"""


def java_string_hash(text: str) -> int:
    """`java.lang.String.hashCode`: over UTF-16 code units, a signed 32-bit number."""
    mask = 0xFFFFFFFF  # compiled, a number of C, as in `murmur2`
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(data), 2):
        value = (31 * value + (data[i] << 8 | data[i + 1])) & mask
    return value if value <= mask >> 1 else value - mask - 1


def coordinator_partition(name: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` or `__transaction_state` that holds `name` (a group or transactional id).

    Kafka's `Utils.abs` clears the sign for every hash but the smallest, which becomes 0.
    """
    value = java_string_hash(name)
    return (0 if value == -0x80000000 else abs(value)) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 with its seed, as a signed number."""
    m = 0x5BD1E995
    mask = 0xFFFFFFFF  # compiled, these are numbers of C; written where they are used, they would be Python's
    seed = 0x9747B28C
    length = len(data)
    h = (seed ^ length) & mask
    i = 0
    while i + 4 <= length:
        k = data[i] | data[i + 1] << 8 | data[i + 2] << 16
        k = (k + data[i + 3] * 0x1000000) * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
        i += 4
    if i < length:
        k = data[i]
        if i + 1 < length:
            k |= data[i + 1] << 8
        if i + 2 < length:
            k |= data[i + 2] << 16
        h = (h ^ k) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h if h <= mask >> 1 else h - mask - 1


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition Kafka's default partitioner gives a key: the positive murmur2, modulo."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
