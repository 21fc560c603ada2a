"""Each heavy thing of the canary's list, smaller: no turn of the broker's loop grows with it.

`make bench` measures what others wait meanwhile. Here it is counted: things are large enough that they would make
far more calls than `_CALLS` in one turn, if they were done in one.
"""

import asyncio
from collections.abc import Iterator

import pytest

from bench.heavy_figures import HEAVY, SETTINGS, tidy
from tests.broker.counted_turns import CountedBroker

#: The largest turn of calls of Python and C. It takes some 2 ms.
_CALLS = 20_000
#: Where one turn is larger, and why.
_MORE = {
    # 500 partitions are one decision (handlers/parts.py): checked, planned, written and applied.
    "OffsetCommit of 10,000 partitions": 45_000,
}
#: How much of each thing, where not a tenth.
_SCALES = {
    "first coordinator": 1.0,
    "create 1,000 topics": 0.2,
    "delete 1,000 topics": 0.2,
    "1,000 topics made by Metadata": 0.2,
    "DescribeConfigs of 1,000 topics": 0.2,
    "set a config of 1,000 topics": 0.2,
    "20 frames of 52 MB, not whole": 0.04,
    "50 readers of 100 MB": 0.02,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[CountedBroker]:
    with CountedBroker(
        {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5", **SETTINGS}
    ) as it:
        yield it


@pytest.mark.parametrize("name", HEAVY)
def test_no_turn_of_the_loop_is_long_whatever_one_client_asks_for(broker: CountedBroker, name: str) -> None:
    async def run() -> None:
        steps = HEAVY[name](broker.bootstrap_servers, _SCALES.get(name, 0.1))
        await anext(steps)
        with broker.counted() as turns:
            await anext(steps, None)
        await tidy(broker.bootstrap_servers)
        assert turns.most, "nothing was counted"
        assert turns.most < _MORE.get(name, _CALLS), f"{turns.most:,} calls in one turn of {turns.whose}"

    asyncio.run(run())
