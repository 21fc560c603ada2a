"""Deleted records: each history with its fault (`-`) shows these names and no other, and without it (`+`) none."""

from __future__ import annotations

from typing import Final

import pytest

from tests.testing.story import histories, names

_STORIES: Final[dict[str, tuple[str, str]]] = {
    "read by who began after the deletion was answered": (
        "deleted-read",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        d deleting 1
      - d deleted 1
        c assigned gen 1
        c polls 0:a 1:b
      + d deleted 1
        log 0:a 1:b
        """,
    ),
    "read after a seek into what was deleted": (
        "deleted-read",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        c assigned gen 1
        c polls 0:a
        d deleting 1
        d deleted 1
      - c seeks 0
      - c polls 0:a
        c polls 1:b
        log 0:a 1:b
        """,
    ),
    "a reset of the position that the user hears of after the deletion": (
        "deleted-read",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
      + c assigned gen 1
        d deleting 1
        d deleted 1
      - c assigned gen 1
        c seeks -1
        c polls 0:a 1:b
        log 0:a 1:b
        """,
    ),
    "another partition's deletion": (
        "deleted-read",
        """
        p sends a
        p ack a 0
      - d deleting 0/1
      - d deleted 0/1
      + d deleting 1/1
      + d deleted 1/1
        c assigned gen 1
        c polls 0:a
        log 0:a
        """,
    ),
    "more is gone than anybody has asked for": (
        "lost-write",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
      - d deleting 1
      + d deleting 2
        log start=2
        """,
    ),
    "a committed transaction has lost more than was deleted": (
        "lost-write",
        """
        p sends a in T
        p ack a 0
        p ends T
        p committed T
      - d deleting 0
      + d deleting 1
        log start=2
        """,
    ),
    "nobody was given what was not deleted": (
        "unseen",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        d deleting 1
      + c polls 1:b
        log 0:a 1:b
        drained
        """,
    ),
    "left out before anybody has asked for the deletion": (
        "poll-skip",
        """
        p sends a
        p sends b
        p sends c
        p ack a 0
        p ack b 1
        p ack c 2
        c polls 0:a
      + d deleting 2
        c polls 2:c
      - d deleting 2
        log 0:a 1:b 2:c
        """,
    ),
    "left out more than was deleted": (
        "poll-skip",
        """
        p sends a
        p sends b
        p sends c
        p ack a 0
        p ack b 1
        p ack c 2
        c polls 0:a
      - d deleting 1
      + d deleting 2
        c polls 2:c
        log 0:a 1:b 2:c
        """,
    ),
    "committed over what was deleted later": (
        "commit-ahead",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        c polls 0:a
      + d deleting 2
        c commits 2
      - d deleting 2
        log 0:a 1:b
        """,
    ),
    "a part of a transaction was deleted, and another one was left out": (
        "intermediate-read",
        """
        p sends a in T
        p sends b in T
        p sends c in T
        p ack a 0
        p ack b 1
        p ack c 2
        p ends T
        p unsure T
      - d deleting 1
      + d deleting 2
        c polls 0:a
        c1 polls 2:c
        """,
    ),
    "an input was deleted before the pipeline came to it": (
        "unprocessed unseen",
        """
        p sends a
        p ack a 0
      + d deleting 1
        log 0:a
        drained transforms
        positions 0
        """,
    ),
    "given and vanished": (
        "vanished-read",
        """
        p sends a
        p unknown a
        c polls 0:a
      - d deleting 0
      + d deleting 1
        log start=1
        """,
    ),
}


@pytest.mark.parametrize("story", _STORIES)
def test_a_history_shows_its_fault_and_nothing_else(story: str) -> None:
    expected, text = _STORIES[story]
    wrong, right = histories(text)
    assert names(wrong) == set(expected.split())
    assert names(right) == set()
