"""`send_arrow`: which rows of a pyarrow.RecordBatch go to which partition, and how large they may be.

pyarrow is imported at the first call.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from operator import add
from typing import Any

from ottla.client.core.producer.accumulator import require_size, size_of

#: Columns are fast only in large batches. Brokers accept 1 MiB by default (`max.message.bytes`); of a topic that does
#: not, a producer learns it from the first batch that it has to split.
LEAST_BATCH_BYTES = 1_000_000


def split_by_partition(
    batch: Any, partition: int | None, of_key: Callable[[bytes], int | None]
) -> Iterator[tuple[int | None, Any]]:
    """(partition, rows) for each partition; the rows keep their order. None: any partition will do.

    The partition of a row is `partition` if it is given, else that of the column `partition`, else that of the key
    (`of_key`).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = batch.schema.names
    if "key" not in names and "value" not in names:  # a misspelt name would otherwise make records without content
        raise ValueError(
            f"rows need a column key or value to become records; there are {', '.join(names) or 'no columns'}"
        )
    if partition is not None or batch.num_rows == 0:
        yield partition, batch
        return
    wanted = pa.nulls(batch.num_rows, pa.int32())
    if "key" in names and not pa.types.is_null(batch.column("key").type):
        keys = pc.dictionary_encode(batch.column("key").cast(pa.binary()))
        keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        wanted = _numbers([of_key(key) for key in keys.dictionary.to_pylist()]).take(keys.indices)
    if "partition" in names:
        wanted = pc.coalesce(batch.column("partition").cast(pa.int32()), wanted)
    numbers = pc.unique(wanted)
    for each in numbers:
        number = each.as_py()
        if len(numbers) == 1:
            yield number, batch  # to filter is to copy, also where all rows stay
        else:
            yield number, batch.filter(pc.is_null(wanted) if number is None else pc.equal(wanted, each))


def require_sizes(batch: Any, most_bytes: int) -> None:
    """Raise RecordTooLargeError for a row that is larger than `most_bytes` (`max.request.size`) alone; ValueError for
    headers that are none."""
    least = size_of(None, None, ())
    if batch.nbytes + least <= most_bytes:
        return
    import pyarrow.compute as pc

    from ottla.wire.columns import packed_headers

    names = batch.schema.names
    sizes = [size for name in ("key", "value") if name in names and (size := _sizes(batch.column(name))) is not None]
    headers = batch.column("headers") if "headers" in names else None
    # To pack headers is slow. Names and lengths take up to ten bytes more than in the column.
    of_headers = 0 if headers is None else headers.nbytes + 10 * batch.num_rows
    if least + sum(pc.max(size).as_py() or 0 for size in sizes) + of_headers <= most_bytes:
        return
    rows: list[int] = [0] * batch.num_rows
    for size in sizes:
        rows = [row + (more or 0) for row, more in zip(rows, size.to_pylist(), strict=True)]
    if headers is not None and least + max(rows, default=0) + of_headers > most_bytes:
        rows = list(map(add, rows, map(len, packed_headers(headers) or [b""] * len(rows))))
    require_size(least + max(rows, default=0), most_bytes)


def _sizes(column: Any) -> Any:
    """How many bytes each row has in the column, null for a null; None if it holds none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.binary_length(column.cast(pa.binary()) if pa.types.is_dictionary(column.type) else column)
    except pa.ArrowException:
        return None  # who encodes it says what it is


def _numbers(values: Iterable[int | None]) -> Any:
    """Partition numbers as an array, without `pyarrow.array` (see `wire.columns.scalar`)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ottla.wire.columns import scalar

    found = array("i", (-1 if each is None else each for each in values))
    numbers = pa.Array.from_buffers(pa.int32(), len(found), [None, pa.py_buffer(found)])
    return pc.if_else(pc.equal(numbers, scalar(-1, pa.int32())), scalar(None, pa.int32()), numbers)
