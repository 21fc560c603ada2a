"""The expected output, computed by plain Python from the same lines, and its comparison with the real output.

Every word of every line is an output record of its own: (word, how often in that line, partition and offset of the
line). A record is identified by line and word, so a loss and a duplicate are each seen and cannot cancel out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: Words stand between ASCII blanks: the same blanks as Java's \s in the pipeline's split().
_WORD = re.compile(r"\S+", re.ASCII)


class Found(NamedTuple):
    """One record of the output: `word`, `times` often, in the line at (partition, offset) of the input."""

    word: str
    times: int
    partition: int
    offset: int


class Tally(NamedTuple):
    """The comparison. `foreign` are records that no line explains, or with a wrong count."""

    expected: int
    read: int
    lost: int
    duplicated: int
    foreign: int

    @property
    def exact(self) -> bool:
        """Whether every expected record was read exactly once, and nothing else."""
        return self.lost == self.duplicated == self.foreign == 0


def words_of(line: str) -> Counter[str]:
    """How often each word stands in a line."""
    return Counter(_WORD.findall(line))


class Expectation:
    """The output that belongs to lines at known places, and which of its records have been seen.

    `places` maps a partition of the input to the line at each of its offsets.
    """

    def __init__(self, places: Mapping[int, Mapping[int, str]]) -> None:
        # Texts repeat: a distinct line is split once. Each of its words has a bit and a count.
        self._words: dict[str, dict[str, tuple[int, int]]] = {}
        for line in {line for partition in places.values() for line in partition.values()}:
            self._words[line] = {w: (1 << n, count) for n, (w, count) in enumerate(words_of(line).items())}
        self._places = places
        self._seen: dict[tuple[int, int], int] = {}
        self._read = self._duplicated = self._foreign = 0
        self.expected = sum(len(self._words[line]) for partition in places.values() for line in partition.values())

    def take(self, found: Found) -> None:
        """Count one record of the output."""
        self._read += 1
        line = self._places.get(found.partition, {}).get(found.offset)
        bit, count = self._words[line].get(found.word, (0, 0)) if line is not None else (0, 0)
        if not bit or count != found.times:
            self._foreign += 1
            return
        place = (found.partition, found.offset)
        seen = self._seen.get(place, 0)
        if seen & bit:
            self._duplicated += 1
        self._seen[place] = seen | bit

    def tally(self) -> Tally:
        """The comparison of everything taken so far with everything expected."""
        found = sum(seen.bit_count() for seen in self._seen.values())
        return Tally(self.expected, self._read, self.expected - found, self._duplicated, self._foreign)


def places_of(lines: Sequence[str], positions: Sequence[tuple[int, int]]) -> dict[int, dict[int, str]]:
    """Partition → offset → line, from where the broker said that each line went.

    Two lines at one place would hide a loss: ValueError.
    """
    places: dict[int, dict[int, str]] = {}
    for line, (partition, offset) in zip(lines, positions, strict=True):
        there = places.setdefault(partition, {})
        if offset in there:
            raise ValueError(f"the broker named partition {partition} offset {offset} for two records")
        there[offset] = line
    return places
