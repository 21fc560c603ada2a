# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""From a key to the offset of its last record, in a table of fixed size: 24 bytes a key, whatever the keys are.

A key is known by 16 bytes of its BLAKE2b hash. (Apache Kafka's map does the same with MD5; but two keys with the same
MD5 can be made, and then one key's record would remove the other's.) Where a place is taken, some others are tried that
the hash gives, so that keys do not pile up; then the places that follow.

One of the compiled modules: a pass asks it twice for each record. Every index is a remainder of the number of places.
Keys are hashed where they lie in a batch, by the function in the .pxd, if they are no longer than one of BLAKE2b's
blocks; Python's own takes three times as long for an object of its own.
"""

from hashlib import blake2b
from struct import Struct

from ottla.base.zeros import zeros
from ottla.wire.record_codec import RecordCursor

#: Told by the loader: the compiled module is no .py file.
COMPILED = not __file__.endswith(".py")

#: What a key takes: its hash, in two halves, and its offset.
BYTES_PER_KEY = 24
_HASH_BYTES = 16
_BLOCK_BYTES = 128
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
        self.memory = zeros(slots * BYTES_PER_KEY)
        self._table = memoryview(self.memory).cast("Q")
        #: Of the key that is looked at.
        self._high = self._low = 0
        #: At least one key, or no pass would ever end; and never more than there are places.
        self.max_keys = min(max(int(slots * load_factor), 1), slots)
        self.keys = 0
        #: The last offset that the map stands for: it knows the last record up to here of every key. -1: nothing.
        self.latest_offset = -1

    def put_some(self, cursor: RecordCursor, at_most: int, start_offset: int) -> bool:
        """`put` the keys of the next `at_most` records, of those at `start_offset` or later; False when it is full."""
        end = cursor.up_to(at_most)
        while cursor.taken < end:
            cursor.advance()
            if cursor.key_size >= 0 and cursor.offset >= start_offset:
                if self.keys >= self.max_keys:
                    return False
                self._hash_at(cursor)
                self._put(cursor.offset)
        return True

    def is_newest(self, cursor: RecordCursor) -> bool:
        """Whether the cursor's record is the last one of its key, as far as the map knows. One without a key is not."""
        if cursor.offset > self.latest_offset:
            return True
        if cursor.key_size < 0:
            return False
        self._hash_at(cursor)
        return cursor.offset >= self._get()

    def put(self, key: bytes, offset: int) -> None:
        """Note the offset of the newest record of `key` so far. Call it only while the map is not full."""
        self._hash(key)
        self._put(offset)

    def get(self, key: bytes) -> int:
        """The offset of its newest record; -1 when the map does not know the key."""
        self._hash(key)
        return self._get()

    def hash_of(self, key: bytes) -> tuple[int, int]:
        """By which the map knows the key."""
        self._hash(key)
        return self._high, self._low

    def _hash_at(self, cursor: RecordCursor) -> int:
        if COMPILED and cursor.key_size <= _BLOCK_BYTES:
            hash_short(self, cursor.raw, cursor.key_at, cursor.key_size)  # type: ignore[name-defined]  # noqa: F821  in the .pxd
        else:
            self._hash_long(cursor.key())
        return 0

    def _hash(self, key: bytes) -> int:
        raw = key
        if COMPILED and len(key) <= _BLOCK_BYTES:
            hash_short(self, raw, 0, len(key))  # type: ignore[name-defined]  # noqa: F821  in the .pxd
        else:
            self._hash_long(key)
        return 0

    def _hash_long(self, key: bytes | None) -> int:
        self._high, self._low = _HALVES.unpack(blake2b(key or b"", digest_size=_HASH_BYTES).digest())
        return 0

    def _put(self, offset: int) -> int:
        at = self._place(self._high, self._low)
        if self._table[at + 2] == 0:
            self._table[at] = self._high
            self._table[at + 1] = self._low
            self.keys = self.keys + 1
        self._table[at + 2] = offset + 1
        self.latest_offset = offset
        return 0

    def _get(self) -> int:
        at = self._place(self._high, self._low)
        if self._table[at] != self._high or self._table[at + 1] != self._low:
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
