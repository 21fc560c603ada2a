"""What is fetched and not taken yet: nothing of it is lost, whenever the user's thread is interrupted. No broker."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.fetch_buffer import FetchBuffer
from ottla.client.core.consumer.fetched import Decoding, FetchedPartition
from ottla.client.core.consumer.positions import PartitionState
from ottla.client.errors import CorruptRecordsError
from ottla.wire.records import Record, encode_batch
from tests.client.interrupts import UserInterrupt, every_moment

_ROOM = "ottla.client.core.consumer"
_ALL = [(number, offset) for number in range(3) for offset in range(6)]


class World:
    """Three partitions, the second paused; two fetches of each, of two batches; a batch has epoch 4 or 5."""

    def __init__(self, *, broken: int | None = None) -> None:
        """All that is fetched of the partition `broken` is damaged."""
        self.buffer = FetchBuffer()
        self.states = [PartitionState(TopicPartition("t", number)) for number in range(3)]
        self.got: list[tuple[int, int]] = []
        decoding = Decoding(check_crcs=True, read_committed=False, key=None, value=None)
        for state in self.states:
            state.seek(0)
        for base in (0, 3):
            for state in self.states:
                data = _batch(base, 2, 4) + _batch(base + 2, 1, 5)
                if state.tp.partition == broken:
                    data = data[:60] + bytes([data[60] ^ 1]) + data[61:]
                self.buffer.add(FetchedPartition(state, data, (), decoding))
        self.states[1].paused = True

    def poll(self, take: Callable[["World"], None]) -> None:
        """As a consumer's poll does it."""
        self.buffer.handed_out()
        try:
            take(self)
        except UserInterrupt:
            self.buffer.put_back()
            raise

    def records(self) -> None:
        self.got += [(r.partition, r.offset) for r in self.buffer.take_records(4)]

    def columns(self) -> None:
        taken = self.buffer.take_one_per_partition(lambda fetch: fetch.take_columns(with_headers=False))
        for tp, columns in taken.items():
            self.got += [(tp.partition, offset) for offset in columns.column("offset").to_pylist()]

    def rest(self, how: Callable[["World"], None]) -> list[tuple[int, int]]:
        self.states[1].paused = False
        while self.buffer:
            self.poll(how)
        assert [state.buffered_fetches for state in self.states] == [0, 0, 0]
        assert [state.buffered_bytes for state in self.states] == [0, 0, 0]
        assert [(state.position, state.position_epoch) for state in self.states] == [(6, 5)] * 3
        return self.got


def _batch(base: int, count: int, epoch: int) -> bytes:
    records = [Record(base + i, 1, None, b"v", ()) for i in range(count)]
    return encode_batch(records, base_offset=base, partition_leader_epoch=epoch)


@pytest.mark.parametrize("how", ["records", "columns"])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_an_interruption_at_any_moment_loses_no_record_and_gives_none_twice(how: str, before: int) -> None:
    if how == "columns":
        pytest.importorskip("pyarrow")
    take = World.records if how == "records" else World.columns
    world = World()

    def run() -> None:
        nonlocal world
        world = World()
        for _ in range(before + 1):
            world.poll(take)

    moments = 0
    for _ in every_moment(run, _ROOM):
        moments += 1
        found = world.rest(take)
        assert sorted(found) == _ALL
        for number in range(3):  # in their order
            assert [offset for n, offset in found if n == number] == list(range(6))
    assert moments > 50


@pytest.mark.parametrize("how", ["records", "columns"])
def test_an_interruption_while_an_error_waits_loses_nothing_of_the_others(how: str) -> None:
    if how == "columns":
        pytest.importorskip("pyarrow")
    take = World.records if how == "records" else World.columns
    world = World(broken=0)

    def run() -> None:
        nonlocal world
        world = World(broken=0)
        with pytest.raises(CorruptRecordsError):
            world.poll(take)

    moments = 0
    for _ in every_moment(run, _ROOM):
        moments += 1
        world.states[1].paused = False
        while len(world.got) < 12:
            with suppress(CorruptRecordsError):
                world.poll(take)
        assert sorted(world.got) == [(n, offset) for n, offset in _ALL if n > 0]
        assert world.states[0].position == 0
    assert moments > 20


@pytest.mark.parametrize("how", ["records", "columns"])
def test_an_interruption_while_an_error_is_kept_for_the_next_call_loses_nothing(how: str) -> None:
    if how == "columns":
        pytest.importorskip("pyarrow")
    take = World.records if how == "records" else World.columns
    world = World(broken=2)

    def run() -> None:
        nonlocal world
        world = World(broken=2)
        world.poll(take)

    for _ in every_moment(run, _ROOM):
        world.states[1].paused = False
        while len(world.got) < 12:
            with suppress(CorruptRecordsError):
                world.poll(take)
        assert sorted(world.got) == [(n, offset) for n, offset in _ALL if n < 2]
        with pytest.raises(CorruptRecordsError):
            for _ in range(2):
                world.poll(take)
        assert world.states[2].position == 0
