"""Committed offsets: each history with its fault (`-`) shows these names and no other, and without it (`+`) none."""

from __future__ import annotations

from typing import Final

import pytest

from tests.testing.story import histories, names

_STORIES: Final[dict[str, tuple[str, str]]] = {
    "a commit of a first generation, and the group was deleted before": (
        "commit-regression",
        """
        c2 commits 1 gen 2
      + began
        c1 commits 2 gen 1
        """,
    ),
    "an old generation commits": (
        "commit-regression",
        """
        c2 commits 2 gen 2
      - c1 commits 1 gen 1
      + c1 commits 1 gen 1 outcome failed
        """,
    ),
    "an old generation's commit arrives late": (
        "commit-regression",
        """
      + c1 calls one
        c2 commits 2 gen 2
      - c1 calls one
        c1 returns one
        c1 commits 1 gen 1 call one
        """,
    ),
    "an old generation commits, between two of newer ones": (
        "commit-regression",
        """
        c1 commits 1 gen 1
        c2 commits 2 gen 3
      - c3 commits 3 gen 2
      + c3 commits 3 gen 3
        c2 commits 4 gen 3
        """,
    ),
    "commits of nobody have no generation": (
        "commit-regression",
        """
        c2 commits 2 gen 2
      - c1 commits 1 gen 0
      + c1 commits 1 gen -1
        """,
    ),
    "another partition's commits": (
        "commit-regression",
        """
        c2 commits 2 gen 2
      - c1 commits 0/1 gen 1
      + c1 commits 1/1 gen 1
        """,
    ),
    "a committed offset that is gone": (
        "commit-regression",
        """
        c commits 5 gen 1
      - positions
      + positions 5
        """,
    ),
    "a committed offset that is an older one": (
        "commit-regression",
        """
        c commits 3 gen 1
        c commits 5 gen 1
      - positions 3
      + positions 5
        """,
    ),
    "two commits at the same time, of which either is the last": (
        "commit-regression",
        """
      + c1 calls one
        c2 commits 5 gen 1
      - c1 calls one
      + c1 commits 3 gen 1 call one
      - c1 commits 4 gen 1 call one
        c1 returns one
        positions 3
        """,
    ),
    "a commit whose outcome nobody knows": (
        "commit-regression",
        """
        c commits 5 gen 1
      - c commits 3 gen 1 outcome failed
      + c commits 3 gen 1 outcome unknown
        positions 3
        """,
    ),
    "a committed offset behind a seek": (
        "commit-regression",
        """
        c commits 5 gen 1
      + c seeks 3
        positions 4
        """,
    ),
    "offsets of a committed transaction": (
        "commit-regression",
        """
        c commits 2 gen 1
        x offsets 5 in T of m gen 1
        x ends T
      - x committed T
      + x aborted T
        positions 2
        """,
    ),
    "offsets of a transaction of which nobody was told": (
        "commit-regression",
        """
        x offsets 5 in T of m gen 1
        x ends T
      - x committed T
      + x unsure T
        positions
        """,
    ),
    "a position over what nobody has": (
        "commit-ahead",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        c polls 0:a
      - c commits 2
      + c commits 1
        c polls 1:b
        log 0:a 1:b
        """,
    ),
    "a position over what nobody has, in the end": (
        "commit-ahead",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        c polls 0:a
        log 0:a 1:b
      - positions 2
      + positions 1
        """,
    ),
    "a position over what nobody has, in a transaction": (
        "commit-ahead",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        x polls 0:a
        x offsets 2 in T of m gen 1
      - x ends T
      + x aborts T
      - x committed T
      + x aborted T
        log 0:a 1:b
        """,
    ),
    "a position over what another member has": (
        "commit-ahead",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        c1 polls 0:a
      - solo polls 1:b
      + c2 polls 1:b
        c1 commits 2
        log 0:a 1:b
        """,
    ),
    "a position over what the group has sought back to only later": (
        "commit-ahead",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
      - c polls 0:a
      + c polls 1:b
        c commits 2
        c seeks 0
        c polls 0:a 1:b
        log 0:a 1:b
        """,
    ),
    "offsets of an old generation are taken into a transaction": (
        "commit-regression",
        """
      + x begins T
        c2 commits 2 gen 2
      - x begins T
        x offsets 1 in T of c1 gen 1
        x aborts T
        x aborted T
        """,
    ),
    "an old generation commits after a new one's offsets were taken into a transaction": (
        "commit-regression",
        """
        x begins T
        x offsets 3 in T of c2 gen 2
      - c1 commits 2 gen 1
      + c1 commits 2 gen 1 outcome unknown
        x aborts T
        x aborted T
        """,
    ),
    "offsets of a first generation, in a transaction, after the group began again": (
        "commit-regression",
        """
        c2 commits 2 gen 2
      + began
        x begins T
        x offsets 3 in T of c1 gen 1
        x ends T
        x committed T
        """,
    ),
    "a first position of a group that begins at the end": (
        "commit-ahead unseen",
        """
        p sends a
        p ack a 0
        c commits 1
        log 0:a
      - drained
        """,
    ),
    "a position over what is not committed": (
        "commit-ahead",
        """
        p sends a
        p ack a 0
        p sends b in T
        p ack b 1
        p ends T
        p unsure T
        c polls 0:a
        c commits 2
      - log 0:a 1:b
      + log 0:a 1:b!
        """,
    ),
    "positions of nobody": (
        "unfenced-commit",
        """
        c assigned gen 1
      - x offsets 5 in T
      + x offsets 5 in T of m gen 1
        """,
    ),
    "positions of nobody, in a group without members": (
        "unfenced-commit",
        """
      - c assigned gen 1
        x offsets 5 in T
        """,
    ),
    "positions of nobody, in a group whose members tell no generation": (
        "unfenced-commit",
        """
      - c assigned gen 0
      + c assigned gen -1
        x offsets 5 in T
        """,
    ),
    "positions of nobody, in a group of which one member tells its generation": (
        "unfenced-commit",
        """
        c1 assigned gen -1
      - c2 assigned gen 3
        x offsets 5 in T
        """,
    ),
    "a position over what nobody has, refused": (
        "commit-ahead",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        c polls 0:a
      - c commits 2
      + c commits 2 outcome failed
        log 0:a 1:b
        """,
    ),
    "an old generation commits at the same time as a new one, and again": (
        "commit-regression",
        """
        c2 calls one
        c3 commits 5 gen 3
        c2 commits 3 gen 2 call one
        c2 returns one
      - c2 commits 4 gen 2
      + c2 commits 4 gen 2 outcome failed
        """,
    ),
    "an old generation commits, and nobody knows whether it could": (
        "commit-regression",
        """
        c2 commits 2 gen 2
      - c1 commits 1 gen 1
      + c1 commits 1 gen 1 outcome unknown
        """,
    ),
    "a commit whose outcome nobody knows, and which took effect after the next one": (
        "commit-regression",
        """
      - c commits 3 gen 1 outcome failed
      + c commits 3 gen 1 outcome unknown
        c commits 5 gen 1
        positions 3
        """,
    ),
    "offsets of a transaction that may have come last": (
        "commit-regression",
        """
        c commits 5 gen 1
        x offsets 3 in T of m gen 1
        x ends T
      - x aborted T
      + x unsure T
        positions 3
        """,
    ),
    "a committed offset behind a seek that was before it": (
        "commit-regression",
        """
      - c seeks 3
        c commits 5 gen 1
      + c seeks 3
        positions 4
        """,
    ),
    "a committed offset of a group that was deleted": (
        "commit-regression",
        """
        c commits 5 gen 1
      - began keeping
      + began
        positions
        """,
    ),
    "a committed offset that is gone, of a group that was deleted before": (
        "commit-regression",
        """
        c commits 5 gen 1
        began
        c commits 2 gen 1
      - positions
      + positions 2
        """,
    ),
    "a commit at the time of the deletion": (
        "commit-regression",
        """
      - c commits 5 gen 1
        c calls one
      + began
        c commits 3 gen 1 call one
        c returns one
        positions
        """,
    ),
    "a position over what was passed by a seek": (
        "commit-ahead",
        """
        p sends a
        p sends b
        p sends c
        p ack a 0
        p ack b 1
        p ack c 2
        c polls 0:a
      - c assigned gen 1
      + c seeks 2
        c polls 2:c
        c commits 3
        log 0:a 1:b 2:c
        """,
    ),
    "a position over what was left out before a seek back": (
        "commit-ahead",
        """
        p sends a
        p sends b
        p sends c
        p ack a 0
        p ack b 1
        p ack c 2
        c polls 0:a
      + c polls 1:b
        c assigned gen 1
        c polls 2:c
        c seeks 2
        c commits 3
        log 0:a 1:b 2:c
        """,
    ),
    "a position behind a seek to who knows where": (
        "commit-ahead",
        """
        p sends a
        p sends b
        p sends c
        p ack a 0
        p ack b 1
        p ack c 2
        c polls 0:a
        c seeks ?
      - c polls 1:b
        c commits 3
        log 0:a 1:b 2:c
        """,
    ),
    "a position over what came after a seek to who knows where": (
        "commit-ahead",
        """
        p sends a
        p sends b
        p sends c
        p sends d
        p ack a 0
        p ack b 1
        p ack c 2
        p ack d 3
        c polls 0:a
        c seeks ?
        c polls 2:c
      - c commits 4
      + c commits 3
        log 0:a 1:b 2:c 3:d
        """,
    ),
}


@pytest.mark.parametrize("story", _STORIES)
def test_a_history_shows_its_fault_and_nothing_else(story: str) -> None:
    expected, text = _STORIES[story]
    wrong, right = histories(text)
    assert names(wrong) == set(expected.split())
    assert names(right) == set()
