"""What was written: each history with its fault (`-`) shows these names and no other, and without it (`+`) none."""

from __future__ import annotations

from typing import Final

import pytest

from tests.testing.story import histories, names

_STORIES: Final[dict[str, tuple[str, str]]] = {
    "acknowledged, and the log ends before it": (
        "lost-write",
        """
        p sends a
        p ack a 0
        p sends b
        p ack b 1
      - log 0:a
      + log 0:a 1:b
        """,
    ),
    "acknowledged, and another record is there": (
        "lost-write",
        """
        p sends a
        p ack a 0
        q sends b
        q unknown b
      - log 0:b
      + log 0:a
        """,
    ),
    "acknowledged without an offset, and nowhere in the log": (
        "lost-write",
        """
        p sends a
        p ack a ?
      - log
      + log 5:a
        """,
    ),
    "sent twice, acknowledged twice without an offset, and there once": (
        "lost-write",
        """
        p sends a
        p ack a ?
        p sends a
        p ack a ?
      - log 0:a
      + log 0:a 1:a
        """,
    ),
    "sent once, and acknowledged twice without an offset": (
        "lost-write",
        """
        p sends a
        p ack a ?
        p ack a ?
      - log
      + log 0:a
        """,
    ),
    "aborted and committed, acknowledged without an offset, and only committed ones were read back": (
        "lost-write",
        """
        p sends a in T
        p ack a ?
        p aborts T
        p aborted T
        p sends a in U
        p ack a ?
        p ends U
        p committed U
      - log committed-only
      + log 2:a committed-only
        """,
    ),
    "failed for sure, sent again, and both are there": (
        "duplicate",
        """
        p sends a
      - p fails a
      + p unknown a
        p sends a
        p ack a 1
        log 0:a 1:a
        """,
    ),
    "failed for sure, sent again, and consumers were given both": (
        "duplicate",
        """
        p sends a
        p fails a
        p sends a
        p ack a 1
      - c polls 0:a 1:a
      + c polls 1:a
        """,
    ),
    "acknowledged, and retention has not come so far": (
        "lost-write",
        """
        p sends a
        p ack a 3
      - log start=3
      + log start=4
        """,
    ),
    "acknowledged, and no compaction that could have taken it": (
        "lost-write",
        """
        p sends a
        p ack a 0
        p sends b
        p ack b 1
      - log 1:b
      + log 1:b compacted
        """,
    ),
    "compaction takes records, and puts none in their places": (
        "lost-write",
        """
        p sends a
        p ack a 0
        p sends b
        p unknown b
      - log 0:b compacted
      + log 1:b compacted
        """,
    ),
    "nobody read the log back, and consumers went past it": (
        "lost-write",
        """
        p sends a
        p ack a 0
        p sends b
        p ack b 1
        p sends c
        p ack c 2
      - solo polls 0:a
        d polls 2:c
      + solo polls 0:a 1:b
        """,
    ),
    "nobody read the log back, and who reads began at the end": (
        "lost-write",
        """
        p sends a
        p ack a 0
        p sends b
        p ack b 1
        p sends c
        p ack c 2
      - solo polls 0:a
        d polls 2:c
        """,
    ),
    "in a committed transaction, and only committed records were read back": (
        "lost-write",
        """
        p sends a in T
        p ack a 0
      - p ends T
      + p aborts T
      - p committed T
      + p aborted T
        log committed-only
        """,
    ),
    "given up, which may be either": (
        "never-settled",
        """
        p sends a
        p sends b
      + p unknown a
        p unknown b
        log 0:a
        """,
    ),
    "refused, and written all the same": (
        "refused-write",
        """
        p sends a
        p fails a
      - log 0:a
      + log
        """,
    ),
    "refused, and read all the same": (
        "aborted-read",
        """
        p sends a
        p fails a
      - c dirty-polls 0:a
        """,
    ),
    "refused, then sent again": (
        "refused-write",
        """
        p sends a
        p fails a
      + p sends a
      + p ack a 0
        log 0:a
        """,
    ),
    "written twice": (
        "duplicate",
        """
        p sends a
        p ack a 0
      - log 0:a 1:a
      + log 0:a
        """,
    ),
    "written into two partitions": (
        "duplicate",
        """
        p sends a
        p ack a 0
        log 0:a
      - log1 0:a
      + log1
        """,
    ),
    "sent twice by its user": (
        "duplicate",
        """
        p sends a
        p unknown a
      + p sends a
      + p ack a 1
        log 0:a 1:a
        """,
    ),
    "sent again after an abort, and then only once to be seen": (
        "duplicate",
        """
        p sends a in T1
        p ack a 0
        p aborts T1
        p aborted T1
        p sends a in T2
        p ack a 2
        p ends T2
        p committed T2
      - log 0:a 2:a
      + log 0:a! 2:a
        """,
    ),
    "read at two offsets": (
        "duplicate",
        """
        p sends a
        p ack a ?
      - c polls 0:a 1:a
      + c polls 0:a
        """,
    ),
    "in another order than sent": (
        "nonmonotonic-send",
        """
        p sends a
        p sends b
        p ack a ?
        p ack b ?
      - log 0:b 1:a
      + log 0:a 1:b
        """,
    ),
    "read in another order than sent": (
        "nonmonotonic-send",
        """
        p sends a
        p sends b
        p ack a ?
        p ack b ?
      - c polls 0:b 1:a
      + c polls 0:a 1:b
        """,
    ),
    "of two producers, which have no order": (
        "nonmonotonic-send",
        """
      - p sends a
      + p sends a by one
      - p sends b
      + p sends b by another
        p ack a ?
        p ack b ?
        log 0:b 1:a
        """,
    ),
    "in two partitions, which have no order": (
        "nonmonotonic-send",
        """
        p sends a
        p sends b
      - p ack a ?
      + p ack a 1/?
        p ack b ?
      - log 0:b 1:a
      + log 0:b
      + log1 0:a
        """,
    ),
    "written by nobody": (
        "unknown-record",
        """
        p sends a
        p ack a 0
      - log 0:a 1:ghost
      + log 0:a
        """,
    ),
    "read, and written by nobody": (
        "unknown-record",
        """
        p sends a
        p ack a 0
        c polls 0:a
      - c polls 1:ghost
        """,
    ),
    "two records acknowledged at one offset": (
        "inconsistent-offsets",
        """
        p sends a
        p ack a 0
        q sends b
      - q ack b 0
      + q ack b 1
        """,
    ),
    "one reader sees another record than the other": (
        "inconsistent-offsets",
        """
        p sends a
        p unknown a
        p sends b
        p unknown b
        c1 polls 0:a
      - solo polls 0:b
      + solo polls 0:a
        """,
    ),
    "acknowledged one, and read another": (
        "inconsistent-offsets lost-write vanished-read",
        """
        p sends a
        p ack a 0
        p sends b
        p unknown b
      - c polls 0:b
      + c polls 0:a
      - log 0:c
      + log 0:a
        q sends c
        q unknown c
        """,
    ),
    "a log with two records in one place": (
        "inconsistent-offsets",
        """
        p sends a
        p ack a 0
        p sends b
        p unknown b
      - log 0:a 0:b
      + log 0:a 1:b
        """,
    ),
    "acknowledged without an offset, and compacted since": (
        "lost-write",
        """
        p sends a
        p ack a ?
      - log
      + log compacted
        """,
    ),
    "acknowledged outside of transactions, and only committed records were read back": (
        "lost-write",
        """
        p sends a
        p ack a 0
      - log committed-only
      + log 0:a committed-only
        """,
    ),
    "sent once more, after another one": (
        "nonmonotonic-send",
        """
        p sends a
        p unknown a
        p sends b
        p ack b 0
      + p sends a
      + p ack a 1
        log 0:b 1:a
        """,
    ),
    "a second copy, behind another one": (
        "duplicate",
        """
        p sends a
        p ack a 0
        p sends b
        p ack b 1
      - log 0:a 1:b 2:a
      + log 0:a 1:b
        """,
    ),
    "read by consumers, while nobody has noted what was sent": (
        "unknown-record",
        """
      - p sends b
      - p unknown b
        c polls 0:a
        """,
    ),
    "acknowledged, and hidden from readers of committed records": (
        "lost-write",
        """
        p sends a
        p ack a 0
      - log 0:a! end=1 lso=1
      + log 0:a end=1 lso=1
        """,
    ),
    "acknowledged, and hidden from readers of committed records before a transaction is open": (
        "lost-write",
        """
        q begins T 60
        q sends b in T
        q ack b 0
        q killed
        p sends a
        p ack a 1
      - log 0:b! 1:a! end=2 lso=2
      + log 0:b! 1:a! end=2 lso=0
        """,
    ),
    "acknowledged without an offset, and hidden from readers of committed records": (
        "lost-write",
        """
        p sends a
        p ack a ?
      - log 0:a! end=1 lso=1
      + log 0:a!
        """,
    ),
    "passed by a seek, and nobody has read the log back": (
        "lost-write",
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
        """,
    ),
    "passed by a seek to who knows where, and nobody has read the log back": (
        "lost-write",
        """
        p sends a
        p sends b
        p sends c
        p ack a 0
        p ack b 1
        p ack c 2
        c polls 0:a
      - c seeks 0
      - c assigned gen 1
      + c seeks ?
        c polls 2:c
        """,
    ),
}


@pytest.mark.parametrize("story", _STORIES)
def test_a_history_shows_its_fault_and_nothing_else(story: str) -> None:
    expected, text = _STORIES[story]
    wrong, right = histories(text)
    assert names(wrong) == set(expected.split())
    assert names(right) == set()
