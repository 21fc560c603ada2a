"""Changes the compression of a batch (`compression.type` of a topic) without a look at its records."""

from ottla.wire.batch import COMPRESSION_MASK, HEADER_BYTES, Buffer, check_integrity, join_batch, parse_header
from ottla.wire.compression import Compression, compress, decompress


def recompressed(batch: Buffer, target: Compression, level: int | None, max_bytes: int) -> bytes:
    """The batch with its records compressed by `target`; `level` is the codec's, None for its default.

    The records' bytes, offsets, times, producer and sequences stay. Raises CorruptBatchError for a batch whose CRC is
    wrong, that does not decompress, or whose records take more than `max_bytes`.
    """
    header = parse_header(batch)
    check_integrity(batch, 0, header)
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    records = decompress(header.compression, body, max_bytes)
    attributes = header.attributes & ~COMPRESSION_MASK | target
    return join_batch(header._replace(attributes=attributes), compress(target, records, level))
