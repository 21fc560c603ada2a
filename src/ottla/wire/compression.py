"""The five compressions of record batches (`compression.type`), over cramjam.

Kafka's framings: gzip members, snappy in xerial blocks (raw snappy is read too), LZ4 frames (KIP-57), zstd frames
(KIP-110). Decompressing never allocates more than the caller's bound: the output buffer has a guessed size and
grows, up to the bound, only while the data really fills it.
"""

import struct
from enum import IntEnum
from typing import Final

import cramjam
from xxhash import xxh32_intdigest

from ottla.base.zeros import zeros
from ottla.wire.batch_errors import BatchTooLargeError, CorruptBatchError

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """Kafka's numbers, as in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


#: `compression.gzip.level`'s default, zlib's word for its own.
_GZIP_DEFAULT_LEVEL: Final = -1
#: The first output buffer is this many times the data, if the data does not say its size. Most data shrinks less.
_USUAL_RATIO: Final = 8
_SMALLEST_GUESS_BYTES: Final = 16_384
_GROWTH: Final = 4
#: If the data names its size, so much is allocated at once, but not more than this many times the data.
_CREDIBLE_RATIO: Final = 1024
#: So many blocks of a frame are looked at for that: a hostile one has a block in every four bytes.
_MOST_BLOCKS: Final = 1_000
#: The text in cramjam's error when the output buffer is full (the Rust standard library's words).
_OUTPUT_FULL: Final = "failed to write whole buffer"

#: Xerial's snappy framing: magic, version 1, lowest version 1; then blocks, each after its length.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32_768
_BIG_LENGTH: Final = struct.Struct(">I")
#: Three bytes of snappy give at most 64 bytes. Data that claims more is refused before anything is allocated.
_SNAPPY_MAX_RATIO: Final = 22

#: A frame begins with its magic; then version 1, independent blocks, no checksums of blocks or content, the content's
#: size. Java's reader refuses blocks that depend on each other, which is what cramjam's own frames have. A batch is one
#: block where that is possible: each call gives Python's lock away, and a busy program gives it back after 5 ms.
_LZ4_MAGIC: Final = bytes.fromhex("04224d18")
_LZ4_FLAGS: Final = 0x68
#: How large a block may be, by its number in the header.
_LZ4_BLOCK_BYTES: Final = {4: 65_536, 5: 262_144, 6: 1_048_576, 7: 4_194_304}
_LZ4_SHORTEST_HEADER_BYTES: Final = 7
#: Java's own, and those above: version 1, independent blocks, no checksums of blocks or content, no dictionary.
_LZ4_PLAIN_FLAGS: Final = 0x60
#: A frame of so many blocks is read block by block: cramjam's reader of frames takes four times as long. Each block is
#: a call that gives Python's lock away.
_LZ4_FEW_BLOCKS: Final = 4
#: Flags of a frame's descriptor, and what each adds to the header, or behind each block.
_LZ4_HAS_DICTIONARY, _LZ4_DICTIONARY_BYTES = 0x01, 4
_LZ4_HAS_SIZE, _LZ4_SIZE_BYTES = 0x08, 8
_LZ4_HAS_CHECKSUMS, _LZ4_CHECKSUM_BYTES = 0x10, 4
#: A block of LZ4 gives at most so many times its own bytes.
_LZ4_MAX_RATIO: Final = 255
_LZ4_STORED_FLAG: Final = 0x8000_0000
_LZ4_END_MARK: Final = bytes(4)
_LITTLE_LENGTH: Final = struct.Struct("<I")

#: Blocks of a zstd frame: as they are (0), one byte that is repeated (1), compressed (2).
_ZSTD_REPEATED: Final = 1
_ZSTD_COMPRESSED: Final = 2
_ZSTD_BLOCK_HEADER_BYTES: Final = 3
_ZSTD_BLOCK_BYTES: Final = 131_072


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`; `level` is gzip's or zstd's (KIP-390), snappy has none and cramjam's LZ4 block but one."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data, None if level == _GZIP_DEFAULT_LEVEL else level))
        case Compression.SNAPPY:
            return _snappy_compress(data)
        case Compression.LZ4:
            return _lz4_compress(data)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level))


def decompress(codec: Compression, data: Buffer, max_bytes: int) -> Buffer:
    """The bytes that were compressed; NONE gives `data` itself.

    Raises CorruptBatchError when the data is damaged or cut off, or holds more than `max_bytes`.
    """
    try:
        match codec:
            case Compression.NONE:
                return data
            case Compression.GZIP:
                return _decompress_growing(cramjam.gzip, data, max_bytes, _gzip_size(data))
            case Compression.SNAPPY:
                return _snappy_decompress(data, max_bytes)
            case Compression.LZ4:
                found = _lz4_in_few_blocks(data, max_bytes)
                return _decompress_growing(cramjam.lz4, data, max_bytes, _lz4_size(data)) if found is None else found
            case Compression.ZSTD:
                return _decompress_growing(cramjam.zstd, data, max_bytes, _zstd_size(data))
    except cramjam.DecompressionError as error:
        raise CorruptBatchError(f"{codec.name.lower()} data does not decompress: {error}") from None


def _decompress_growing(module: object, data: Buffer, max_bytes: int, claimed_bytes: int) -> memoryview:
    guess = claimed_bytes if 0 < claimed_bytes <= len(data) * _CREDIBLE_RATIO else len(data) * _USUAL_RATIO
    size = min(max(guess, _SMALLEST_GUESS_BYTES), max_bytes)
    while True:
        output = zeros(size)
        try:
            used: int = module.decompress_into(data, output)  # type: ignore[attr-defined]
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise
        else:
            return memoryview(output)[:used]
        if size >= max_bytes:
            raise BatchTooLargeError(f"{len(data)} compressed bytes hold more than {max_bytes}")
        size = min(size * _GROWTH, max_bytes)


def _gzip_size(data: Buffer) -> int:
    """The size in the trailer of the last member (RFC 1952), which is nearly always the only one; 0 if unknown."""
    return int.from_bytes(data[-4:], "little") if len(data) >= 18 else 0


def _zstd_size(data: Buffer) -> int:
    """The content size in the frame header (RFC 8878, 3.1.1.1). A streaming writer, as Java's and librdkafka's, leaves
    it out: then the most that the frame's blocks can hold; 0 if unknown."""
    if len(data) < 18:
        return 0
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    start = 6 - single_segment + (0, 1, 2, 4)[descriptor & 3]
    size = (single_segment, 2, 4, 8)[descriptor >> 6]
    if size:
        return int.from_bytes(data[start : start + size], "little") + (256 if size == 2 else 0)
    return _zstd_blocks_size(data, start)


def _zstd_blocks_size(data: Buffer, start: int) -> int:
    """The most that blocks from `start` on can hold (RFC 8878, 3.1.1.2); 0 if the last one is not there, or far."""
    at, most = start, 0
    for _ in range(_MOST_BLOCKS):
        if at + _ZSTD_BLOCK_HEADER_BYTES > len(data):
            break
        header = int.from_bytes(data[at : at + _ZSTD_BLOCK_HEADER_BYTES], "little")
        kind, size = header >> 1 & 3, header >> 3
        most += min(size, _ZSTD_BLOCK_BYTES) if kind < _ZSTD_COMPRESSED else _ZSTD_BLOCK_BYTES
        if header & 1:
            return most
        at += _ZSTD_BLOCK_HEADER_BYTES + (1 if kind == _ZSTD_REPEATED else size)
    return 0


def _snappy_compress(data: Buffer) -> bytes:
    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BIG_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, max_bytes: int) -> memoryview:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return memoryview(_snappy_block(view, max_bytes))
    output = bytearray()
    pos, end = len(_XERIAL_HEADER), len(view)
    while pos < end:
        if end - pos < _BIG_LENGTH.size:
            raise CorruptBatchError("snappy data ends inside the length of a block")
        (size,) = _BIG_LENGTH.unpack_from(view, pos)
        pos += _BIG_LENGTH.size
        if size > end - pos:
            raise CorruptBatchError(f"a snappy block of {size} bytes, {end - pos} are left")
        output += _snappy_block(view[pos : pos + size], max_bytes - len(output))
        pos += size
    return memoryview(output)


def _snappy_block(block: memoryview, max_bytes: int) -> bytearray:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > max_bytes or size > len(block) * _SNAPPY_MAX_RATIO:
        credible = size <= len(block) * _SNAPPY_MAX_RATIO
        raise (BatchTooLargeError if credible else CorruptBatchError)(
            f"a snappy block of {len(block)} bytes claims to hold {size}, at most {max_bytes} may be"
        )
    output = bytearray(size)
    used = cramjam.snappy.decompress_raw_into(block, output)
    if used != size:
        raise CorruptBatchError(f"a snappy block holds {used} bytes and claims {size}")
    return output


def _lz4_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    number, most = next((each for each in _LZ4_BLOCK_BYTES.items() if len(view) <= each[1]), (7, _LZ4_BLOCK_BYTES[7]))
    descriptor = bytes((_LZ4_FLAGS, number << 4)) + len(view).to_bytes(_LZ4_SIZE_BYTES, "little")
    parts = [_LZ4_MAGIC, descriptor, bytes((xxh32_intdigest(descriptor) >> 8 & 0xFF,))]
    for start in range(0, len(view), most):
        block = view[start : start + most]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += (_LITTLE_LENGTH.pack(len(packed)), packed)
        else:
            parts += (_LITTLE_LENGTH.pack(len(block) | _LZ4_STORED_FLAG), bytes(block))
    parts.append(_LZ4_END_MARK)
    return b"".join(parts)


def _lz4_in_few_blocks(data: Buffer, max_bytes: int) -> memoryview | None:
    """What an ordinary frame of few blocks holds. None for any other, and for one that is damaged or too large: the
    reader of frames finds out why."""
    view = memoryview(data)
    if len(view) < _LZ4_SHORTEST_HEADER_BYTES or view[:4] != _LZ4_MAGIC or view[4] & ~_LZ4_HAS_SIZE != _LZ4_PLAIN_FLAGS:
        return None
    at = _LZ4_SHORTEST_HEADER_BYTES + (_LZ4_SIZE_BYTES if view[4] & _LZ4_HAS_SIZE else 0)
    most_of_one, blocks = None if view[5] & 0x0F else _LZ4_BLOCK_BYTES.get(view[5] >> 4), list[tuple[int, int, int]]()
    if most_of_one is None or len(view) < at or view[at - 1] != xxh32_intdigest(view[4 : at - 1]) >> 8 & 0xFF:
        return None
    while len(blocks) <= _LZ4_FEW_BLOCKS and at + _LITTLE_LENGTH.size <= len(view):
        (length,) = _LITTLE_LENGTH.unpack_from(view, at)
        at += _LITTLE_LENGTH.size
        size = length & ~_LZ4_STORED_FLAG
        if not length and at == len(view):
            return _lz4_blocks(view, blocks, max_bytes)
        if at + size > len(view) or size > most_of_one or not size:
            return None
        blocks.append((at, size, 0 if length != size else min(most_of_one, size * _LZ4_MAX_RATIO)))
        at += size
    return None


def _lz4_blocks(frame: memoryview, blocks: list[tuple[int, int, int]], max_bytes: int) -> memoryview | None:
    """What these blocks of a frame hold. Each begins somewhere, has so many bytes, and gives so many at most; 0 for one
    that is stored as it is. None as above."""
    has_size = frame[4] & _LZ4_HAS_SIZE
    most = sum(gives or size for _, size, gives in blocks)
    total = int.from_bytes(frame[6 : 6 + _LZ4_SIZE_BYTES], "little") if has_size else most
    if total > min(most, max_bytes):
        return None
    output, used = memoryview(zeros(total)), 0
    for at, size, gives in blocks:
        room = output[used : used + (gives or size)]
        if gives:
            try:
                used += cramjam.lz4.decompress_block_into(frame[at : at + size], room)
            except cramjam.DecompressionError:
                return None
        elif len(room) < size:
            return None
        else:
            room[:] = frame[at : at + size]
            used += size
    return None if has_size and used != total else output[:used]


def _lz4_size(data: Buffer) -> int:
    """The content size in the frame's header, which most writers leave out: then the most that its blocks can hold; 0
    if unknown (LZ4 Frame Format 1.6)."""
    if len(data) < _LZ4_SHORTEST_HEADER_BYTES + len(_LZ4_END_MARK):
        return 0
    flags, most_of_one = data[4], 1 << (8 + 2 * (data[5] >> 4 & 7))
    if flags & _LZ4_HAS_SIZE:
        return int.from_bytes(data[6 : 6 + _LZ4_SIZE_BYTES], "little")
    at = _LZ4_SHORTEST_HEADER_BYTES + (_LZ4_DICTIONARY_BYTES if flags & _LZ4_HAS_DICTIONARY else 0)
    behind = _LZ4_CHECKSUM_BYTES if flags & _LZ4_HAS_CHECKSUMS else 0
    most = 0
    for _ in range(_MOST_BLOCKS):
        if at + _LITTLE_LENGTH.size > len(data):
            break
        (length,) = _LITTLE_LENGTH.unpack_from(data, at)
        if not length:
            return most
        size = length & ~_LZ4_STORED_FLAG
        most += size if length != size else min(most_of_one, size * _LZ4_MAX_RATIO)
        at += _LITTLE_LENGTH.size + size + behind
    return 0
