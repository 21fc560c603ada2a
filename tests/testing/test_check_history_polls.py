"""Positions: each history with its fault (`-`) shows these names and no other, and without it (`+`) none."""

from __future__ import annotations

from typing import Final

import pytest

from tests.testing.story import histories, names

_STORIES: Final[dict[str, tuple[str, str]]] = {
    "goes back without a reason": (
        "nonmonotonic-poll",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        c polls 0:a 1:b
      + c seeks 1
        c polls 1:b
        log 0:a 1:b
        """,
    ),
    "goes back within a poll": (
        "nonmonotonic-poll",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
      - c polls 1:b 0:a
      + c polls 0:a 1:b
        log 0:a 1:b
        """,
    ),
    "goes back after an assignment": (
        "nonmonotonic-poll",
        """
        p sends a
        p ack a 0
        c polls 0:a
      + c assigned gen 2
        c polls 0:a
        log 0:a
        """,
    ),
    "goes back after an assignment of another partition": (
        "nonmonotonic-poll",
        """
        p sends a
        p ack a 0
        c polls 0:a
      - c assigned gen 2 partition 1
      + c assigned gen 2 partition 0
        c polls 0:a
        log 0:a
        """,
    ),
    "goes back after its partitions were revoked, and given to it again": (
        "nonmonotonic-poll",
        """
        p sends a
        p ack a 0
        c polls 0:a
      + c revoked
        c polls 0:a
        log 0:a
        """,
    ),
    "goes back further than it has sought": (
        "nonmonotonic-poll",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        c polls 0:a 1:b
      - c seeks 1
      + c seeks 0
        c polls 0:a
        log 0:a 1:b
        """,
    ),
    "leaves one out": (
        "poll-skip",
        """
        p sends a
        p sends b
        p sends c
        p ack a 0
        p ack b 1
        p ack c 2
        c polls 0:a
      + c polls 1:b
        c polls 2:c
        log 0:a 1:b 2:c
        """,
    ),
    "leaves one out within a poll, and nobody read the log back": (
        "poll-skip lost-write",
        """
        p sends a
        p sends b
        p sends c
        p ack a 0
        p ack b 1
        p ack c 2
      - c polls 0:a 2:c
      + c polls 0:a 1:b 2:c
        """,
    ),
    "leaves out what is aborted": (
        "poll-skip",
        """
        p sends a
        p ack a 0
      - p sends b
      + p sends b in T
        p ack b 1
        p sends c
        p ack c 2
      + p aborts T
      + p aborted T
        c polls 0:a 2:c
      - log 0:a 1:b 2:c
      + log 0:a 1:b! 2:c
        """,
    ),
    "leaves out what is aborted, and may not": (
        "poll-skip",
        """
        p sends a
        p ack a 0
        p sends b in T
        p ack b 1
        p sends c
        p ack c 2
        p aborts T
        p aborted T
      - c dirty-polls 0:a 2:c
      + c dirty-polls 0:a 1:b 2:c
        log 0:a 1:b! 2:c
        """,
    ),
    "leaves out a marker": (
        "poll-skip",
        """
        q sends b
        q unknown b
        p sends a
        p sends c
        p ack a 0
        p ack c 2
        c polls 0:a 2:c
      - log 0:a 1:b 2:c
      + log 0:a 2:c
        """,
    ),
    "leaves one out after a seek": (
        "poll-skip",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
      - c seeks 0
      + c seeks 1
        c polls 1:b
        log 0:a 1:b
        """,
    ),
    "leaves one out after a seek to a place that nobody knows": (
        "poll-skip",
        """
        p sends a
        p sends b
        p sends c
        p ack a 0
        p ack b 1
        p ack c 2
        c polls 0:a
      + c seeks ?
        c polls 2:c
        log 0:a 1:b 2:c
        """,
    ),
    "leaves one out when another member had it meanwhile": (
        "poll-skip",
        """
        p sends a
        p sends b
        p sends c
        p ack a 0
        p ack b 1
        p ack c 2
        c1 polls 0:a
      + c1 revoked
        c2 polls 1:b
      + c1 assigned gen 3
        c1 polls 2:c
        log 0:a 1:b 2:c
        """,
    ),
    "acknowledged without an offset, and nobody was given it": (
        "unseen",
        """
        p sends a
        p ack a ?
      - c polls
      + c polls 7:a
        drained
        """,
    ),
    "acknowledged without an offset, and aborted": (
        "unseen",
        """
        p begins T
        p sends a in T
        p ack a ?
      - p ends T
      - p committed T
      + p aborts T
      + p aborted T
        drained
        """,
    ),
    "never read by anybody": (
        "unseen",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        c1 polls 0:a
      + c2 polls 1:b
        log 0:a 1:b
        drained
        """,
    ),
    "never read, and acknowledged only": (
        "unseen",
        """
        p sends a
        p sends b
        p ack a 0
      - p ack b 1
      + p unknown b
        c polls 0:a
        drained
        """,
    ),
    "never read by this group, but by somebody else": (
        "unseen",
        """
        p sends a
        p ack a 0
      - solo polls 0:a
      + c polls 0:a
        log 0:a
        drained
        """,
    ),
    "never read, and not committed": (
        "unseen",
        """
        p sends a in T
        p ack a 0
        p ends T
        p unsure T
        log 0:a!
      - drained dirty
      + drained
        """,
    ),
    "leaves out what another reader was given as committed": (
        "poll-skip",
        """
        p sends a
        p ack a 0
        p sends b in T
        p ack b 1
        p ends T
        p unsure T
        p sends c
        p ack c 2
      - c1 polls 1:b
      + c1 dirty-polls 1:b
        solo polls 0:a 2:c
        """,
    ),
}


@pytest.mark.parametrize("story", _STORIES)
def test_a_history_shows_its_fault_and_nothing_else(story: str) -> None:
    expected, text = _STORIES[story]
    wrong, right = histories(text)
    assert names(wrong) == set(expected.split())
    assert names(right) == set()
