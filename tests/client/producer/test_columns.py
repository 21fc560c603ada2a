"""Which rows of a table go to which partition."""

import pytest

pa = pytest.importorskip("pyarrow")

from ottla.client.producer.columns import split_by_partition  # noqa: E402


def test_rows_that_go_to_one_partition_are_not_copied() -> None:
    values = pa.array([b"a", b"b"])
    for rows, partition in (
        (pa.RecordBatch.from_pydict({"value": values}), None),
        (pa.RecordBatch.from_pydict({"value": values, "key": pa.array([b"k", b"l"])}), 1),
        (pa.RecordBatch.from_pydict({"value": values, "partition": pa.array([2, 2], pa.int32())}), 2),
    ):
        ((number, found),) = split_by_partition(rows, None, lambda _: 1)
        assert number == partition
        assert found is rows


def test_rows_keep_their_order_in_each_partition() -> None:
    keys, wanted = pa.array([b"a", b"b", None, b"a", b"b"]), pa.array([None, None, None, 7, None], pa.int32())
    rows = pa.RecordBatch.from_pydict(
        {"key": keys, "value": pa.array([b"%d" % n for n in range(5)]), "partition": wanted}
    )
    found = {
        number: part.column("value").to_pylist()
        for number, part in split_by_partition(rows, None, {b"a": 0, b"b": 1}.get)
    }
    assert found == {0: [b"0"], 1: [b"1", b"4"], None: [b"2"], 7: [b"3"]}
