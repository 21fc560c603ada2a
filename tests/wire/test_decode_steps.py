"""A message of many elements is decoded in steps: whatever its arrays are, no step takes many of them."""

from itertools import pairwise
from typing import Any

import pytest

from ottla.wire.codec import NO_LIMIT, Reader, TooManyElementsError
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.schema import _read_steps, decode_steps, encode, plan

_ELEMENTS = 9_000
#: A step takes a hundred elements, and those of an element that has no more than a hundred.
_IN_A_STEP = 210


def _commit(topics: int, partitions: int) -> OffsetCommitRequest:
    each = tuple(OffsetCommitRequestPartition(n) for n in range(partitions))
    named = (OffsetCommitRequestTopic(name=f"t{n}", partitions=each) for n in range(topics))
    return OffsetCommitRequest("g", topics=tuple(named))


def _markers(markers: int, topics: int, partitions: int) -> WriteTxnMarkersRequest:
    named = tuple(WritableTxnMarkerTopic(f"t{n}", tuple(range(partitions))) for n in range(topics))
    return WriteTxnMarkersRequest(tuple(WritableTxnMarker(n, 0, True, named) for n in range(markers)))


@pytest.mark.parametrize(
    ("message", "version", "elements"),
    [
        (_commit(1, _ELEMENTS), 9, _ELEMENTS),
        (_commit(_ELEMENTS, 1), 9, 2 * _ELEMENTS),
        (_commit(90, 100), 9, 90 * 101),
        (_commit(_ELEMENTS, 0), 9, _ELEMENTS),
        (_markers(1, 1, _ELEMENTS), 1, _ELEMENTS),
        (_markers(10, 30, 30), 1, _ELEMENTS),
        (DescribeGroupsRequest(tuple(f"g{n:04}" for n in range(_ELEMENTS))), 5, _ELEMENTS),
    ],
    ids=["partitions", "topics", "both", "topics alone", "numbers", "numbers below", "texts"],
)
def test_no_step_takes_many_elements(message: Any, version: int, elements: int) -> None:
    encoded = encode(message, version)
    reader, decoded = Reader(encoded, 0, NO_LIMIT), []
    steps = _read_steps(reader, plan(type(message), version))

    def whole() -> Any:
        decoded.append((yield from steps))

    ends = [0, *(reader.pos for _ in whole()), reader.pos]
    assert decoded == [message]
    longest = max(after - before for before, after in pairwise(ends))
    assert longest <= _IN_A_STEP * (len(encoded) / elements)


def test_elements_are_counted_over_all_steps() -> None:
    message = _commit(90, 100)
    elements = 90 * 101
    encoded = encode(message, 9)
    list(decode_steps(type(message), 9, encoded, max_elements=elements))
    with pytest.raises(TooManyElementsError, match="OffsetCommitRequest v9"):
        list(decode_steps(type(message), 9, encoded, max_elements=elements - 1))
