# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Where each batch of a fetch begins, without a look into the batches, and without an object for any of them.

One of the compiled modules: an answer may have a batch in every 70 bytes.
"""

from array import array

from ottla.wire.batch import CURRENT_MAGIC, WALK_LAYOUT

_HEADER_BYTES, _OVERHEAD_BYTES, _AT_MAGIC, _AT_LENGTH, _AT_LAST_DELTA, _LEAST_LENGTH = WALK_LAYOUT
_MAGIC = CURRENT_MAGIC
_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1

Buffer = bytes | bytearray | memoryview


def batch_positions(data: Buffer) -> "tuple[array[int], int]":
    """The position of each whole batch whose offsets follow those before it, and where the walk has ended.

    There the data ends, perhaps inside a batch; or there is what is no batch, or one whose offsets do not follow.
    """
    found = array("q", bytes(8 * _guess(data)))
    count, end = walk(data, found)
    if count > len(found):
        found = array("q", bytes(8 * count))
        walk(data, found)
    del found[count:]
    return found, end


def _guess(data: Buffer) -> int:
    """How many there are if all are as large as the first one."""
    if len(data) < _HEADER_BYTES:
        return 0
    length = number(data, _AT_LENGTH, 4)
    return len(data) // max(length + _OVERHEAD_BYTES, _HEADER_BYTES) + 1


def walk(data: Buffer, found: "array[int]") -> tuple[int, int]:
    """How many batches there are, and where the walk ends; their positions go into `found`, as far as it has room."""
    pos = 0
    count = 0
    behind = 0
    end = len(data)
    room = len(found)
    while end - pos >= _HEADER_BYTES and data[pos + _AT_MAGIC] == _MAGIC:
        length = number(data, pos + _AT_LENGTH, 4)
        delta = number(data, pos + _AT_LAST_DELTA, 4)
        base = number(data, pos, 8)
        if not _LEAST_LENGTH <= length <= _MAX_INT32 or length + _OVERHEAD_BYTES > end - pos:
            break
        if delta > _MAX_INT32 or not behind <= base <= _MAX_INT64 - _MAX_INT32 - 1:
            break
        behind = base + delta + 1
        if count < room:
            found[count] = pos
        count += 1
        pos += length + _OVERHEAD_BYTES
    return count, pos


def number(data: Buffer, at: int, size: int) -> int:
    """A number of so many bytes, without a sign; one of eight that has none of 63 bits is -1."""
    value = 0
    for i in range(at, at + size):
        value = value << 8 | data[i]
    return -1 if value > _MAX_INT64 else value
