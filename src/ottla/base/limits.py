"""Every limit in one place, with its reason."""

from typing import Final

#: A request frame on the wire; Kafka's default of `socket.request.max.bytes`. Checked before a byte is allocated.
MAX_REQUEST_BYTES: Final = 104_857_600

#: A response frame the client accepts; a fetch of `fetch.max.bytes` (50 MiB) with one oversized batch fits twice.
MAX_RESPONSE_BYTES: Final = 268_435_456

#: Elements of one array in a decoded message. Every element takes at least one byte on the wire, so a count larger
#: than the bytes left is refused before anything is built; this bounds structs that take no bytes at all.
MAX_ARRAY_ELEMENTS: Final = 4_000_000

#: Nested tagged fields of one struct; Kafka itself uses fewer than ten.
MAX_TAGGED_FIELDS: Final = 1_000
