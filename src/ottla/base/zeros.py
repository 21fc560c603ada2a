"""Memory that is all zeros, and that the system gives as it is used.

`bytearray(size)` writes every byte of it before it returns: 256 MiB take a third of a second, in which Python runs no
other thread.
"""

import mmap
from collections.abc import Iterator
from typing import Final

#: Up to here Python is faster, because it has such memory at hand: 1 MiB for a tenth of a millisecond, and not for one.
_MOST_AT_HAND_BYTES: Final = 8_388_608
#: What is taken in one step: half a millisecond, where the system is slow to give it.
_TAKEN_AT_ONCE_BYTES: Final = 262_144


def zeros(size_bytes: int) -> "bytearray | mmap.mmap":
    """So many bytes, all 0, that can be written."""
    if size_bytes <= _MOST_AT_HAND_BYTES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return bytearray(size_bytes)
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def taken(memory: "bytearray | mmap.mmap") -> Iterator[None]:
    """Have the system give all of it, some at a time. For whoever will write here and there, while others wait."""
    if isinstance(memory, mmap.mmap):
        for start in range(0, len(memory), _TAKEN_AT_ONCE_BYTES):
            for page in range(start, min(start + _TAKEN_AT_ONCE_BYTES, len(memory)), mmap.PAGESIZE):
                memory[page] = 0
            yield
