"""A clock on which everything takes as long: tests count in turns of the loop what may not keep it."""

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ottla.base.clock import ManualClock
from ottla.broker.runtime.slices import TURN_MS
from ottla.testing import AsyncBroker
from ottla.wire.apis import API, ApiKey
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tests.broker.wire_client import WireClient

#: Looks at the quotas' clock that every request takes, whatever it asks.
_AROUND = 6
#: For what never comes. A thread or a disk that is waited for may take longer than many turns of the loop.
_PATIENCE_S = 60.0


class TickingClock(ManualClock):
    """Each look at the monotonic reading takes a millisecond, so that a slice of `TURN_MS` has so many steps."""

    def monotonic_ms(self) -> int:
        now_ms = super().monotonic_ms()
        self.advance(1)
        return now_ms


async def turns(answer: "asyncio.Task[Any]", look: Callable[[], int]) -> list[int]:
    """What `look` says, turn by turn of the loop, until the answer is there."""
    seen = [look()]
    while not answer.done():
        await asyncio.sleep(0)
        seen.append(look())
    return seen


async def some_turns_until(holds: Callable[[], bool]) -> None:
    """As many turns of the loop as that takes; AssertionError where it does not come."""
    until_s = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < until_s, "it does not come"
        await asyncio.sleep(0)


def steps(seen: list[int]) -> list[int]:
    """By how much it has changed from turn to turn."""
    return [abs(after - before) for before, after in pairwise(seen)]


async def in_pieces(
    broker: AsyncBroker, client: WireClient, key: ApiKey, request: Any, version: int
) -> tuple[Any, int]:
    """The answer, and in how many pieces it was made: of no turn of the loop are there more than its time allows.

    Each piece is charged to the client, which looks at the quotas' clock before and after it.
    """
    unlimited = EntryData((EntityData("client-id", None),), (OpData("request_percentage", 1e9, False),))
    await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest((unlimited,)), 1)
    looks = 0

    def nanos() -> int:
        nonlocal looks
        looks += 1
        return 0

    broker.node.quotas.nanos = nanos
    answer = asyncio.create_task(client.ask(key, request, version))
    seen = await turns(answer, lambda: looks)
    assert max(steps(seen)) <= 2 * TURN_MS + _AROUND, API[key].name
    return await answer, (looks - _AROUND) // 2
