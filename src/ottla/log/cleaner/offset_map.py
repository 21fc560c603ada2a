"""From a key to the offset of its last record, in a table of fixed size: 24 bytes a key, whatever the keys are.

A key is known by 16 bytes of its BLAKE2b hash. (Apache Kafka's map does the same with MD5; but two keys with the same
MD5 can be made, and then one key's record would remove the other's.) Collisions of places are resolved as Kafka does:
by the hash's other bytes, then by the places that follow.
"""

from hashlib import blake2b
from struct import Struct
from typing import Final

#: What a key takes.
BYTES_PER_KEY: Final = 24
_HASH_BYTES: Final = 16
#: How many places the hash itself gives; then the next ones are tried.
_PLACES: Final = _HASH_BYTES - 3
_OFFSET: Final = Struct(">q")
_FREE: Final = bytes(8)


class OffsetMap:
    """At most `max_keys` keys, of which a table of `size_bytes` is filled to `load_factor`."""

    def __init__(self, size_bytes: int, load_factor: float, wanted_keys: int | None = None) -> None:
        """`wanted_keys` is known to be enough: no larger table than they need is made."""
        slots = size_bytes // BYTES_PER_KEY
        if wanted_keys is not None:
            slots = min(slots, int(wanted_keys / max(load_factor, 0.01)) + 1)
        self._slots = max(slots, 1)
        self._table = bytearray(self._slots * BYTES_PER_KEY)
        #: At least one key, or no pass would ever end; and never more than there are places.
        self.max_keys = min(max(int(self._slots * load_factor), 1), self._slots)
        self.keys = 0
        #: The last offset that the map stands for: it knows the last record up to here of every key. -1: nothing.
        self.latest_offset = -1

    @property
    def is_full(self) -> bool:
        """Whether no more keys should be put."""
        return self.keys >= self.max_keys

    def put(self, key: bytes, offset: int) -> None:
        """Note the offset of the newest record of `key` so far. Call it only while the map is not full."""
        digest = blake2b(key, digest_size=_HASH_BYTES).digest()
        at, found = self._place(digest)
        if not found:
            self._table[at : at + _HASH_BYTES] = digest
            self.keys += 1
        _OFFSET.pack_into(self._table, at + _HASH_BYTES, offset + 1)
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """The offset of its newest record; -1 when the map does not know the key."""
        at, found = self._place(blake2b(key, digest_size=_HASH_BYTES).digest())
        offset: int = _OFFSET.unpack_from(self._table, at + _HASH_BYTES)[0]
        return offset - 1 if found else -1

    def _place(self, digest: bytes) -> tuple[int, bool]:
        """Where the key is, or else where it can be put; in a full table without it, any place and False."""
        table, slots = self._table, self._slots
        at = 0
        for attempt in range(slots + _PLACES):
            start = min(attempt, _PLACES - 1)
            probe = int.from_bytes(digest[start : start + 4], "big") + max(0, attempt - _PLACES + 1)
            at = probe % slots * BYTES_PER_KEY
            if table[at + _HASH_BYTES : at + BYTES_PER_KEY] == _FREE:
                return at, False
            if table[at : at + _HASH_BYTES] == digest:
                return at, True
        return at, False
