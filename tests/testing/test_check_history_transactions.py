"""Transactions: each history with its fault (`-`) shows these names and no other, and without it (`+`) none."""

from __future__ import annotations

from typing import Final

import pytest

from tests.testing.story import histories, names

_STORIES: Final[dict[str, tuple[str, str]]] = {
    "half of it": (
        "torn-transaction",
        """
        p begins T
        p sends a in T
        p sends b in T
        p ack a 0
        p ack b 1
        p ends T
        p killed
      - log 0:a 1:b!
      + log 0:a! 1:b!
        """,
    ),
    "half of it in each of two partitions": (
        "torn-transaction",
        """
        p sends a in T
        p sends b in T
        p ack a 0
        p ack b 1/0
        p killed
        log 0:a
      - log1 0:b!
      + log1 0:b
        """,
    ),
    "half of it, of which the rest was never acknowledged": (
        "torn-transaction",
        """
        p sends a in T
        p sends b in T
        p ack a 0
        p killed
      - log 0:a
      + log 0:a 1:b
        """,
    ),
    "half of it, and the rest may be where nobody has looked": (
        "torn-transaction",
        """
        p sends a in T
        p sends b in T
        p ack a 0
      - p unknown b
      + p ack b 1/0
        p ends T
        p unsure T
        log 0:a
        """,
    ),
    "half of it, and retention took the rest": (
        "torn-transaction",
        """
        p sends a in T
        p sends b in T
        p ack a 0
        p ack b 1
        p ends T
        p unsure T
      - log 0:a! 1:b
      + log 1:b start=1
        """,
    ),
    "committed, and not there": (
        "lost-write",
        """
        p sends a in T
        p ack a 0
        p ends T
        p committed T
      - log 0:a!
      + log 0:a
        """,
    ),
    "committed without a record that has failed for sure": (
        "lost-write",
        """
        p sends a in T
        p ack a 0
        p sends b in T
      - p ack b 1
      + p fails b
        p ends T
        p committed T
        log 0:a
        """,
    ),
    "aborted, and there": (
        "aborted-read",
        """
        p sends a in T
        p ack a 0
        p aborts T
        p aborted T
      - log 0:a
      + log 0:a!
        """,
    ),
    "aborted, then sent again and committed": (
        "aborted-read",
        """
        p sends a in T
        p ack a 0
        p aborts T
        p aborted T
      + p sends a in U
      + p ack a 2
      + p ends U
      + p committed U
      - log 0:a
      + log 0:a! 2:a
        """,
    ),
    "of an outcome that nobody was told": (
        "aborted-read",
        """
        p sends a in T
        p ack a 0
      - p aborted T
      + p unsure T
        log 0:a
        """,
    ),
    "asked to abort, nobody was told, and it is there": (
        "aborted-read",
        """
        p sends a in T
        p ack a 0
        p aborts T
        p unsure T
      - log 0:a
      + log 0:a!
        """,
    ),
    "asked to abort, told that it is committed, and it is there": (
        "aborted-read",
        """
        p sends a in T
        p ack a 0
      - p aborts T
      + p ends T
        p committed T
        log 0:a
        """,
    ),
    "asked to abort after a commit that nobody knows of, and it is there": (
        "aborted-read",
        """
        p sends a in T
        p ack a 0
      + p ends T
        p aborts T
        p unsure T
        log 0:a
        """,
    ),
    "killed before it asked for an end, and it is there": (
        "aborted-read",
        """
        p begins T
        p sends a in T
        p ack a 0
        p killed
      - log 0:a
      + log 0:a!
        """,
    ),
    "killed before it asked for an end, and its driver has asked": (
        "aborted-read",
        """
        p begins T
        p sends a in T
        p ack a 0
        p killed
      + driver ends T
      + driver committed T
        log 0:a
        """,
    ),
    "open for ever": (
        "stuck-lso",
        """
        p sends a in T
        p ack a 0
        p killed
      - log 0:a! end=1 lso=0
      + log 0:a! end=2 lso=2
        """,
    ),
    "open, and older than its timeout": (
        "stuck-lso",
        """
      - p begins T 2
      + p begins T 60
        p sends a in T
        p ack a 0
        p killed
        log 0:a! end=1 lso=0
        """,
    ),
    "open, and older than its timeout, as those tell who read back what is committed": (
        "stuck-lso",
        """
        q sends b
        q ack b 0
      - p begins T 2
      + p begins T 60
        p sends a in T
        p ack a 1
        p killed
        log 0:b end=2 lso=1 committed-only
        """,
    ),
    "ended, and still open after a timeout that is not over": (
        "stuck-lso",
        """
        p begins T 60
        p sends a in T
        p ack a 0
        p aborts T
      - p aborted T
      + p unsure T
        log 0:a! end=1 lso=0
        """,
    ),
    "open, by a producer of whom nobody knows": (
        "stuck-lso",
        """
      - log end=5 lso=3
      + log end=5 lso=5
        """,
    ),
    "asked to commit, and nobody was told": (
        "never-settled",
        """
        p sends a in T
        p ack a 0
        p ends T
      + p unsure T
        log 0:a
        """,
    ),
    "asked to commit, killed, and nobody was told": (
        "never-settled",
        """
        p ends T
      + p killed
        """,
    ),
    "asked again after a commit that could not be": (
        "never-settled",
        """
        p ends T
        p aborts T
      + p aborted T
        """,
    ),
    "a call that hangs": (
        "never-settled",
        """
        p calls flush
      + p returns flush
        """,
    ),
    "a call of a process that was killed, and one of its next life": (
        "never-settled",
        """
        p calls flush
        p killed
        p2 calls flush2
      + p2 returns flush2
        """,
    ),
    "sent and never told, in a second attempt": (
        "never-settled",
        """
        p sends a
        p unknown a
        p sends a
      + p ack a 0
        log 0:a
        """,
    ),
    "committed in a second attempt, and only the first one is there": (
        "lost-write",
        """
        p sends a in T1
        p ack a 0
        p aborts T1
        p aborted T1
        p sends a in T2
        p ack a ?
        p ends T2
        p committed T2
      - log 0:a!
      + log 0:a! 2:a
        """,
    ),
    "half of it, and compaction took the rest": (
        "lost-write torn-transaction",
        """
        p sends a in T
        p sends b in T
        p ack a 0
        p ack b 1
        p ends T
        p unsure T
      - log 1:b
      + log 1:b compacted
        """,
    ),
    "sent by a client that was killed, and by the next one": (
        "never-settled",
        """
        p1 sends a
        p1 killed
        p2 sends a
      + p2 ack a 0
        log 0:a
        """,
    ),
    "sent by two, of whom one is told": (
        "never-settled",
        """
        p1 sends a
        p2 sends a
        p2 ack a 0
      + p1 ack a 1
        log 0:a 1:a
        """,
    ),
    "a call of a client that was killed before it, as the test says": (
        "never-settled",
        """
        p killed
        p calls flush
      + p returns flush
        """,
    ),
    "committed, and a part of it is where nobody has looked": (
        "lost-write",
        """
        p sends a in T
        p ack a 0
        p sends b in T
        p ack b 1/?
        p ends T
        p committed T
        log 0:a
      - log1
        """,
    ),
    "asked to abort after a commit that nobody knows of, and nobody was told": (
        "never-settled",
        """
        p sends a in T
        p ack a 0
        p ends T
        p unsure T
        p aborts T
      + p unsure T
        """,
    ),
    "a commit that hangs": (
        "never-settled",
        """
        c calls one
      - c commits 1
      + c commits 1 call one
        """,
    ),
}


@pytest.mark.parametrize("story", _STORIES)
def test_a_history_shows_its_fault_and_nothing_else(story: str) -> None:
    expected, text = _STORIES[story]
    wrong, right = histories(text)
    assert names(wrong) == set(expected.split())
    assert names(right) == set()
