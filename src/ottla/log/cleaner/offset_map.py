# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""From a key to the offset of its last record, in a table of fixed size: 24 bytes a key, whatever the keys are.

A key is known by 16 bytes of its BLAKE2b hash. (Apache Kafka's map does the same with MD5; but two keys with the same
MD5 can be made, and then one key's record would remove the other's.) Where a place is taken, some others are tried that
the hash gives, so that keys do not pile up; then the places that follow.

One of the compiled modules: a pass asks it twice for each record. Every index is a remainder of the number of places.
"""

from hashlib import blake2b
from struct import Struct

from ottla.wire.records import KeyRow

#: What a key takes: its hash, in two halves, and its offset.
BYTES_PER_KEY = 24
_HASH_BYTES = 16
_HALVES = Struct("<QQ")


class OffsetMap:
    """At most `max_keys` keys, of which a table of `size_bytes` is filled to `load_factor`."""

    def __init__(self, size_bytes: int, load_factor: float, wanted_keys: int | None = None) -> None:
        """`wanted_keys` is known to be enough: no larger table than they need is made."""
        slots = size_bytes // BYTES_PER_KEY
        if wanted_keys is not None:
            slots = min(slots, int(wanted_keys / max(load_factor, 0.01)) + 1)
        slots = max(slots, 1)
        self._slots = slots
        #: For each place: the halves of the hash, and the offset + 1; 0 is a place that is free.
        self._table = memoryview(bytearray(slots * BYTES_PER_KEY)).cast("Q")
        #: At least one key, or no pass would ever end; and never more than there are places.
        self.max_keys = min(max(int(slots * load_factor), 1), slots)
        self.keys = 0
        #: The last offset that the map stands for: it knows the last record up to here of every key. -1: nothing.
        self.latest_offset = -1

    def put_all(self, rows: list[KeyRow]) -> bool:
        """`put` each row that has a key; False when the map is full."""
        for offset, key, _ in rows:
            if key is not None:
                if self.keys >= self.max_keys:
                    return False
                self.put(key, offset)
        return True

    def are_newest(self, rows: list[KeyRow]) -> list[bool]:
        """Whether each of these rows is the last one of its key, as far as the map knows. One without a key is not."""
        newest = []
        for offset, key, _ in rows:
            stays = offset > self.latest_offset or (key is not None and offset >= self.get(key))
            newest.append(stays)
        return newest

    def put(self, key: bytes, offset: int) -> None:
        """Note the offset of the newest record of `key` so far. Call it only while the map is not full."""
        high, low = _HALVES.unpack(blake2b(key, digest_size=_HASH_BYTES).digest())
        at = self._place(high, low)
        if self._table[at + 2] == 0:
            self._table[at] = high
            self._table[at + 1] = low
            self.keys = self.keys + 1
        self._table[at + 2] = offset + 1
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """The offset of its newest record; -1 when the map does not know the key."""
        high, low = _HALVES.unpack(blake2b(key, digest_size=_HASH_BYTES).digest())
        at = self._place(high, low)
        if self._table[at] != high or self._table[at + 1] != low:
            return -1
        return self._table[at + 2] - 1

    def _place(self, high: int, low: int) -> int:
        """Where the key is in the table, or else where it can be put; in a full table without it, any place."""
        slots = self._slots
        jumps = 12  # compiled, these are numbers of C
        most = slots + jumps
        place = high % slots
        step = low % slots
        attempt = 0
        while attempt < most:
            at = place * 3
            if self._table[at + 2] == 0 or (self._table[at] == high and self._table[at + 1] == low):
                return at
            attempt += 1
            place = (place + (step if attempt < jumps else 1)) % slots
        return place * 3
