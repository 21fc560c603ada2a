"""What requests cost the broker of one checkout beside that of another: `python -m bench.trees BEFORE AFTER`.

Each is a checkout that `tools/setup.sh` has set up. Their brokers run side by side, and short bursts of requests go to
each in turn, so that both have the same share of a machine that others use, or that changes its pace. The CPU of the
broker's process is counted. On such a machine a run after the other does not tell five percent; this does.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from bench.broker_cpu import cpu_s
from bench.peers import OttlaPeer
from bench.transaction_figures import Transactor, find
from bench.wire import NOW_MS, Wire, made_topic, settled
from ottla.wire.apis import ApiKey
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.records import Record, encode_batch

_TOPIC: Final = "trees"
_RECORD: Final = encode_batch([Record(0, NOW_MS, None, b"x" * 100, ())])
_WARM_UP, _ROUNDS = 3, 150
#: What is written is deleted again soon.
_SETTINGS: Final = {"log.segment.bytes": "50000000", "log.retention.bytes": "100000000"}
#: Carries out so many requests.
Burst = Callable[[int], Awaitable[None]]


async def _produces(wire: Wire, stack: AsyncExitStack, partitions: int) -> Burst:
    data = tuple(PartitionProduceData(number, _RECORD) for number in range(partitions))
    request = ProduceRequest(None, -1, 60_000, (TopicProduceData(name=_TOPIC, partition_data=data),))

    async def burst(times: int) -> None:
        for _ in range(times):
            await settled(wire, ApiKey.PRODUCE, request, _worst)

    return burst


def _worst(answer: ProduceResponse) -> int:
    return max(each.error_code for each in answer.responses[0].partition_responses)


async def _crowd(wire: Wire, stack: AsyncExitStack, partitions: int, clients: int) -> Burst:
    """As many connections, all at once."""
    wires = [await stack.enter_async_context(Wire(wire.bootstrap)) for _ in range(clients)]
    each = [await _produces(one, stack, partitions) for one in wires]

    async def burst(times: int) -> None:
        await asyncio.gather(*(produce(times // clients) for produce in each))

    return burst


async def _transactions(wire: Wire, stack: AsyncExitStack) -> Burst:
    await find(wire, _TOPIC)
    transactor = Transactor(wire, _TOPIC, _TOPIC, 0)
    await transactor.start()
    return transactor.commit


#: Partitions of the topic, requests in a burst, and how they are made.
_CASES: Final[dict[str, tuple[int, int, Callable[[Wire, AsyncExitStack], Awaitable[Burst]]]]] = {
    "a produce to 1 partition": (1, 400, partial(_produces, partitions=1)),
    "a produce to 40 partitions": (40, 40, partial(_produces, partitions=40)),
    "a produce to 40 partitions, 50 clients at once": (40, 100, partial(_crowd, partitions=40, clients=50)),
    "a transaction of 10 records": (1, 60, _transactions),
}


async def _measured(peers: Sequence[OttlaPeer], case: str) -> list[list[float]]:
    """For each broker the CPU of a request in each round, in microseconds."""
    partitions, times, made = _CASES[case]
    async with AsyncExitStack() as stack:
        bursts = []
        for peer in peers:
            wire = await stack.enter_async_context(Wire(peer.bootstrap))
            await made_topic(wire, _TOPIC, partitions)
            bursts.append(await made(wire, stack))
            await bursts[-1](_WARM_UP * times)
        found: list[list[float]] = [[] for _ in peers]
        for number in range(_ROUNDS):
            for at in range(len(peers)) if number % 2 else reversed(range(len(peers))):
                before = cpu_s(peers[at].pid)
                await bursts[at](times)
                found[at].append((cpu_s(peers[at].pid) - before) / times * 1e6)
        return found


def _compare(trees: Sequence[Path], case: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ottla-trees-") as scratch:
        peers: list[OttlaPeer] = []
        try:
            for number, tree in enumerate(trees):
                python = str(tree / ".venv/bin/python")
                peers.append(OttlaPeer(Path(scratch) / str(number), _SETTINGS, python=python))
                peers[-1].start_and_wait()
            found = asyncio.run(_measured(peers, case))
        finally:
            for peer in peers:
                peer.stop()
    print(f"{case}, µs of CPU")
    for tree, costs in zip(trees, found, strict=True):
        ratio = statistics.median(ours / first for ours, first in zip(costs, found[0], strict=True))
        print(f"  {tree}: least {min(costs):.1f}, median {statistics.median(costs):.1f}, × the first {ratio:.3f}")


def main() -> None:
    """Compare the brokers of all checkouts that are named with that of the first."""
    trees = [Path(each) for each in sys.argv[1:]]
    if len(trees) < 2 or not all((tree / ".venv/bin/python").exists() for tree in trees):
        sys.exit("name two checkouts or more, each set up by tools/setup.sh: python -m bench.trees ../before .")
    for case in _CASES:
        _compare([tree.absolute() for tree in trees], case)


if __name__ == "__main__":
    main()
