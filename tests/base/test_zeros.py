"""Zeros that nobody has written yet take no memory."""

import tracemalloc

import pytest

from ottla.base.zeros import taken, zeros


@pytest.mark.parametrize("size_bytes", [0, 1, 8_388_608, 8_388_609])
def test_all_are_0_and_can_be_written(size_bytes: int) -> None:
    view = memoryview(zeros(size_bytes))
    assert view == bytes(size_bytes)
    if size_bytes:
        view[-1] = 7
        assert view[-1] == 7


def test_much_is_not_written_before_it_is_used() -> None:
    tracemalloc.start()
    try:
        found = zeros(2**34)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert len(found) == 2**34


def test_it_is_taken_in_steps_and_stays_0() -> None:
    memory = zeros(2**24 + 1)
    steps = sum(1 for _ in taken(memory))
    assert steps == 65
    assert memoryview(memory) == bytes(2**24 + 1)
    assert not list(taken(zeros(1_000))), "Python has written it"
