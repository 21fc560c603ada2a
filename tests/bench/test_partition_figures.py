"""Many partitions as requests name them, asked about until none has an error."""

import asyncio
from collections.abc import Sequence

import pytest

from bench.partition_figures import MANY, Many, Part, until_all
from bench.wire import RefusedError
from ottla.wire.errors import ErrorCode


def test_every_partition_is_in_one_request_and_partitions_of_a_topic_stand_together() -> None:
    assert Many("t", 2, 3).parts(4) == [[("t-0", 0), ("t-0", 1), ("t-0", 2), ("t-1", 0)], [("t-1", 1), ("t-1", 2)]]


def test_what_there_is_many_of_is_in_the_name_with_its_number() -> None:
    assert [many.title for many in MANY.values()] == ["10,000 partitions", "5,000 topics"]
    assert [many.scaled(0.1).title for many in MANY.values()] == ["1,000 partitions", "500 topics"]


def test_those_that_say_later_are_asked_again_and_no_others() -> None:
    parts, asked = Many("t", 3, 1).parts(3)[0], list[list[Part]]()

    async def ask(left: Sequence[Part]) -> list[tuple[Part, int]]:
        asked.append(list(left))
        return [(part, ErrorCode.NOT_LEADER_OR_FOLLOWER if n >= len(asked) else 0) for n, part in enumerate(left)]

    asyncio.run(until_all(parts, ask, pause_s=0))
    assert asked == [parts, parts[1:]]


def test_an_error_that_time_does_not_mend_is_told() -> None:
    async def ask(left: Sequence[Part]) -> list[tuple[Part, int]]:
        return [(part, ErrorCode.INVALID_TOPIC_EXCEPTION) for part in left]

    with pytest.raises(RefusedError, match="INVALID_TOPIC_EXCEPTION"):
        asyncio.run(until_all([("t", 0)], ask))
