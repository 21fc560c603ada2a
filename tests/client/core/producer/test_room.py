"""Who waits for room in `buffer.memory` hears of much room at once, and of a little soon (`Fates.tell_of_room`)."""

import pytest

from ottla.client.core.intents import Channel
from ottla.client.core.producer.fates import LITTLE_ROOM_S, RoomFreed
from ottla.client.errors import DisconnectedError, IllegalStateError
from ottla.wire.apis import ApiKey
from tests.client.core.producer.by_hand import BROKER, ByHand

BATCH_BYTES = 100
BATCHES = 16


def filled(**config: object) -> ByHand:
    """A producer whose `buffer.memory` is full, of batches of one record; the first of them is on the wire."""
    world = ByHand("t", batch_size=BATCH_BYTES, buffer_memory=BATCHES * BATCH_BYTES, **config)
    for _ in range(BATCHES):
        world.send("t")
    world.identify(1, 0)
    world.connect()
    assert world.core.accumulator.begin("t", 0, 1, None, b"v", (), None) is None
    world.feed(world.core.want_room)
    return world


@pytest.fixture
def full() -> ByHand:
    return filled()


def test_an_eighth_of_the_memory_is_told_of_at_once(full: ByHand) -> None:
    full.acknowledge()
    assert full.count(RoomFreed) == 0
    full.acknowledge()
    assert full.count(RoomFreed) == 1


def test_a_little_room_is_told_of_soon(full: ByHand) -> None:
    full.acknowledge()
    wake_at_s = full.core.wake_at_s
    assert wake_at_s == full.now_s + LITTLE_ROOM_S
    full.now_s = wake_at_s - 0.001
    full.feed(full.core.woken)
    assert full.count(RoomFreed) == 0
    full.now_s = wake_at_s
    full.feed(full.core.woken)
    assert full.count(RoomFreed) == 1


def test_each_wait_has_its_own_time(full: ByHand) -> None:
    full.acknowledge()
    full.now_s += LITTLE_ROOM_S
    full.feed(full.core.woken)
    full.append("t")  # it takes the room
    full.feed(full.core.want_room)
    full.now_s += 1
    full.acknowledge()
    assert full.count(RoomFreed) == 1
    assert full.core.wake_at_s == full.now_s + LITTLE_ROOM_S


def test_nobody_is_told_who_does_not_wait(full: ByHand) -> None:
    full.acknowledge()
    full.acknowledge()
    for _ in range(3):
        full.acknowledge()
    full.now_s += 1
    full.feed(full.core.woken)
    assert full.count(RoomFreed) == 1


def test_memory_for_one_batch_is_much_room_when_it_is_free() -> None:
    world = ByHand("t", batch_size=BATCH_BYTES, buffer_memory=BATCH_BYTES)
    world.send("t")
    world.identify(1, 0)
    world.connect()
    world.feed(world.core.want_room)
    world.acknowledge()
    assert world.count(RoomFreed) == 1


def test_a_little_room_is_told_of_at_once_when_no_answer_can_make_it_more(full: ByHand) -> None:
    full.acknowledge()  # until then one request was on its way: the broker did not know the producer id yet
    full.feed(full.core.disconnected, BROKER, Channel.MAIN)
    assert full.waiting(ApiKey.PRODUCE) == 5
    for _ in range(5):
        assert full.count(RoomFreed) == 0
        full.lose(ApiKey.PRODUCE, DisconnectedError("gone"))
    assert full.count(RoomFreed) == 1


def test_who_waits_for_a_few_ms_only_hears_before_that() -> None:
    world = filled(max_block_ms=4)
    world.acknowledge()
    assert world.core.wake_at_s == world.now_s + 0.001


def test_batches_that_fail_make_room_too(full: ByHand) -> None:
    full.now_s += full.core.config.delivery_timeout_ms / 1000
    full.feed(full.core.woken)
    assert full.count(RoomFreed) == 1


def test_a_producer_that_closes_tells_who_waits(full: ByHand) -> None:
    full.feed(full.core.close, IllegalStateError("closed"))
    assert full.count(RoomFreed) == 1
