# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Whether the numbers of an index ascend, without an object for any of them.

One of the compiled modules: an index of 1 GB of small batches has 262,144 entries, and each read of an old segment
begins with a look at all of them.
"""

Buffer = bytes | bytearray | memoryview


def ascend(entries: Buffer, entry_bytes: int, at: int, size: int, strictly: bool) -> bool:
    """Whether each entry's number at `at`, of `size` bytes and with a sign, is greater than the one before it.

    Not `strictly`: or equal to it.
    """
    before = 0
    start, end = at, len(entries)
    while start < end:
        value = number(entries, start, size)
        if start > at and (value < before or (strictly and value == before)):
            return False
        before = value
        start += entry_bytes
    return True


def number(entries: Buffer, at: int, size: int) -> int:
    """A number of so many bytes, with a sign."""
    value = entries[at]
    if value > 127:
        value -= 256
    for i in range(at + 1, at + size):
        value = value * 256 + entries[i]
    return value
