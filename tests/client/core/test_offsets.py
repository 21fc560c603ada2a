"""What a request can hold of offsets, times and partitions. No broker."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.offsets import (
    OffsetAndMetadata,
    checked_offset,
    checked_offsets,
    checked_partition,
    checked_time,
)
from ottla.client.errors import KafkaError

TP = TopicPartition("t", 0)
_MOST = 2**63 - 1


def test_what_can_be_held_comes_back() -> None:
    assert [checked_offset(at) for at in (0, _MOST)] == [0, _MOST]
    assert [checked_time(at) for at in (-2, _MOST)] == [-2, _MOST]
    assert checked_partition(("t", 2**31 - 1)) == TopicPartition("t", 2**31 - 1)
    given: Any = {("t", 0): 5}
    assert checked_offsets(given) == {TP: OffsetAndMetadata(5)}


@pytest.mark.parametrize(
    ("check", "given", "error"),
    [
        (checked_offset, -1, ValueError),
        (checked_offset, _MOST + 1, ValueError),
        (checked_offset, 1.5, TypeError),
        (checked_time, _MOST + 1, ValueError),
        (checked_time, "now", TypeError),
        (checked_partition, ("t", -1), ValueError),
        (checked_partition, ("t", 2**31), ValueError),
        (checked_partition, ("t", None), TypeError),
        (checked_partition, ("no such/name", 0), KafkaError),
        (checked_offsets, {TP: OffsetAndMetadata(5, "", 2**31)}, ValueError),
        (checked_offsets, {TP: OffsetAndMetadata(5, b"note")}, TypeError),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_held_is_refused(check: Callable[[Any], object], given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        check(given)


def test_o1_a_note_that_utf_8_cannot_write_is_refused() -> None:
    with pytest.raises(ValueError, match=r"t-0: the metadata must be text that UTF-8 can write"):
        checked_offsets({TopicPartition("t", 0): OffsetAndMetadata(1, metadata="\udcff")})
