"""Where the records of TLS begin in what comes (RFC 8446, section 5.1): how many of them are decrypted is bounded.

A record costs its receiver microseconds however small it is, and one that updates the keys some fifteen.
"""

from typing import Final

#: Type, version, and a length of two bytes, which is that of what follows.
_HEADER_BYTES: Final = 5


class Records:
    """The records of one client."""

    __slots__ = ("_begun", "_next")

    def __init__(self) -> None:
        #: Where the next header begins, from what comes next on. Below 0 if its first bytes have come: these.
        self._next = 0
        self._begun = b""

    def cut(self, data: memoryview, at_most: int) -> tuple[int, int]:
        """How many bytes of `data` there are before one record too many begins, and how many begin in them.

        They count as taken: what is behind them comes with the next call.
        """
        position, size_bytes, count = self._next, len(data), 0
        while position + _HEADER_BYTES <= size_bytes:
            if count == at_most:
                self._next, self._begun = 0, b""
                return position, count
            if position < 0:
                header = self._begun + data[: position + _HEADER_BYTES]
                length = header[3] << 8 | header[4]
            else:
                length = data[position + 3] << 8 | data[position + 4]
            position += _HEADER_BYTES + length
            count += 1
        if position < size_bytes:
            self._begun = bytes(data[position:]) if position >= 0 else self._begun + data
        self._next = position - size_bytes
        return size_bytes, count
