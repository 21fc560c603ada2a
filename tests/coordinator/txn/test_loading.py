"""The end of a load, in steps: one transaction in each, however many there are."""

from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.coordinator.txn.requests import init, ongoing
from tests.coordinator.txn.runtime import T0, ShardRuntime

_IDS = 300


def test_a_shard_that_is_loaded_watches_its_transactions_one_after_the_other() -> None:
    """All timers and markers of a shard were one decision, carried out in one turn."""
    runtime = ShardRuntime()
    ongoing(runtime, T0)
    for number in range(_IDS):
        init(runtime, InitProducerIdRequest(f"id-{number}", 60_000))
    runtime.reload()
    steps = list(runtime.shard.loaded(runtime.now_ms))
    assert len(steps) == 1 + 1 + _IDS, "expiration, the open one, and those that are not open"
    assert max(len(each.timers) + len(each.effects) for each in steps) == 1
    assert sum(len(each.timers) for each in steps) == 2
