"""A message of many elements is decoded in steps: whatever its arrays are, no step takes many of them."""

import pytest

from ottla.wire.codec import TooManyElementsError
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.schema import decode, decode_steps, encode

_VERSION = 9
_ELEMENTS = 9_000
#: So many elements, and no more, are in one step.
_IN_A_STEP = 200


def _commit(topics: int, partitions: int) -> OffsetCommitRequest:
    each = tuple(OffsetCommitRequestPartition(n) for n in range(partitions))
    named = (OffsetCommitRequestTopic(name=f"t{n}", partitions=each) for n in range(topics))
    return OffsetCommitRequest("g", topics=tuple(named))


@pytest.mark.parametrize(("topics", "partitions"), [(1, _ELEMENTS), (_ELEMENTS, 1), (90, 100), (_ELEMENTS, 0)])
def test_no_step_takes_many_elements(topics: int, partitions: int) -> None:
    message = _commit(topics, partitions)
    encoded = encode(message, _VERSION)
    assert sum(1 for _ in decode_steps(type(message), _VERSION, encoded)) >= topics * (1 + partitions) // _IN_A_STEP
    assert decode(type(message), _VERSION, encoded) == message


def test_elements_are_counted_over_all_steps() -> None:
    message = _commit(90, 100)
    elements = 90 * 101
    encoded = encode(message, _VERSION)
    list(decode_steps(type(message), _VERSION, encoded, max_elements=elements))
    with pytest.raises(TooManyElementsError, match="OffsetCommitRequest v9"):
        list(decode_steps(type(message), _VERSION, encoded, max_elements=elements - 1))
