"""Aborted transactions come as they begin, whichever segments their markers are in."""

from random import Random

import pytest

from ottla.log.cleaner.transactions import Aborted, in_order
from ottla.log.txn_index import AbortedTxn


@pytest.mark.parametrize("start", [0, 1, 20_000, 29_999, 30_000, 70_000])
def test_those_that_end_behind_the_start_come_as_they_begin_and_newer_ones_do_not(start: int) -> None:
    draw = Random(start)
    firsts = draw.sample(range(30_000), 13_000)
    entries = [AbortedTxn(n, first, 30_000 + n, 0) for n, first in enumerate(firsts)]
    entries[:100] = [AbortedTxn(n, n, 200 * n + 101, 0) for n in range(100)]
    segments = [Aborted(entries[:40], 40), Aborted([], 0), Aborted(entries[40:], len(entries) - 40 - 7)]
    steps = 0
    ordering = in_order(segments, start)
    while True:
        try:
            next(ordering)
        except StopIteration as done:
            found = list(done.value)
            break
        steps += 1
    known = [each for each in entries[:-7] if each.last_offset >= start]
    assert found == sorted(known, key=lambda each: each.first_offset)
    assert steps >= len(known) // 5_000
