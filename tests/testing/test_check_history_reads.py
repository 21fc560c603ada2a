"""Single reads: each history with its fault (`-`) shows these names and no other, and without it (`+`) none."""

from __future__ import annotations

from typing import Final

import pytest

from tests.testing.story import histories, names

_STORIES: Final[dict[str, tuple[str, str]]] = {
    "read, and not committed": (
        "aborted-read",
        """
        p sends a
        p ack a 0
        p sends b in T
        p ack b 1
        p ends T
        p unsure T
      - c polls 0:a 1:b
      + c dirty-polls 0:a 1:b
        log 0:a 1:b!
        """,
    ),
    "read, aborted, and nobody read the log back": (
        "aborted-read",
        """
        p sends a in T
        p ack a 0
        p ends T
      - p aborted T
      + p unsure T
        c polls 0:a
        """,
    ),
    "read by a reader who may, and nobody read the log back": (
        "aborted-read precommitted-read",
        """
        p sends a in T
        p ack a 0
        p aborts T
        p aborted T
      - c polls 0:a
      + c dirty-polls 0:a
        log 0:a!
        """,
    ),
    "read, and gone": (
        "vanished-read",
        """
        p sends a
        p unknown a
        c polls 0:a
      - log
      + log 0:a
        """,
    ),
    "read, and another record is there": (
        "vanished-read",
        """
        p sends a
        p unknown a
        p sends b
        p unknown b
        c polls 0:a
      - log 0:b
      + log 0:a
        """,
    ),
    "read, and deleted since": (
        "vanished-read",
        """
        p sends a
        p unknown a
        c polls 3:a
      - log start=3
      + log start=4
        """,
    ),
    "read, and compacted since": (
        "vanished-read",
        """
        p sends a
        p unknown a
        c polls 0:a
      - log
      + log compacted
        """,
    ),
    "read before it was aborted, and only committed records were read back": (
        "vanished-read",
        """
        p sends a in T
        p ack a 0
        p ends T
        p unsure T
      - c polls 0:a
      + c dirty-polls 0:a
        log committed-only
        """,
    ),
    "read before anybody asked for the commit": (
        "precommitted-read",
        """
        p sends a in T
        p ack a 0
      - c polls 0:a
        p ends T
      + c polls 0:a
        p committed T
        log 0:a
        """,
    ),
    "its own writes, in the same transaction": (
        "precommitted-read",
        """
        x sends a in T
        x ack a 0
      - x polls 0:a
      + x dirty-polls 0:a
        x ends T
        x committed T
        log 0:a
        """,
    ),
    "read before the commit, which was noted when it was done": (
        "precommitted-read",
        """
        p sends a in T
        p ack a 0
        c polls 0:a
      - p ends T
        p committed T
        log 0:a
        """,
    ),
    "read before the end, after a commit that was asked for and given up": (
        "precommitted-read",
        """
        p sends a in T
        p ack a 0
      + p ends T
        c polls 0:a
      - p ends T
        p aborts T
        p unsure T
        log 0:a
        """,
    ),
    "a part, and read past the rest": (
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
        d polls 0:a
      - c polls 2:c
      + c polls 1:b 2:c
        """,
    ),
    "a part, and the rest is still to come": (
        "intermediate-read",
        """
        p sends a in T
        p sends b in T
        p ack a 0
        p ack b 1
        p ends T
        p unsure T
        c polls 0:a
      - drained
        """,
    ),
    "a part, and the rest was passed by a seek": (
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
        c polls 0:a
      - c seeks 1
      - c assigned gen 1
      + c seeks 2
        c polls 2:c
        """,
    ),
    "a part, by a reader without a group": (
        "intermediate-read poll-skip",
        """
        p sends a in T
        p sends b in T
        p sends c in T
        p ack a 0
        p ack b 1
        p ack c 2
        p ends T
        p committed T
      - solo polls 0:a 2:c
      + solo polls 0:a 1:b 2:c
        log 0:a 1:b 2:c
        """,
    ),
    "read, and another record is there after compaction": (
        "vanished-read",
        """
        p sends a
        p unknown a
        p sends b
        p unknown b
        c polls 0:a
      - log 0:b compacted
      + log 1:b compacted
        """,
    ),
    "read before the commit, and sent by somebody else as well": (
        "precommitted-read",
        """
        p sends a in T
        p ack a 0
      + q sends a
      + q unknown a
        c polls 0:a
        p ends T
        p committed T
        """,
    ),
    "a part, and the rest is before the place where the reader began": (
        "intermediate-read",
        """
        q sends x
        q ack x 0
        p sends a in T
        p sends b in T
        p ack a 1
        p ack b 2
        p ends T
        p unsure T
      - c polls 0:x
        c polls 2:b
        """,
    ),
    "a part, by readers who may": (
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
      - c1 polls 0:a
      + c1 dirty-polls 0:a
      - c2 polls 2:c
      + c2 dirty-polls 2:c
        """,
    ),
    "read, aborted, and the log begins behind it": (
        "aborted-read",
        """
        p sends a in T
        p ack a 0
        p ends T
      - p aborted T
      + p unsure T
        c polls 0:a
        log start=2
        """,
    ),
    "read, aborted, and compacted since": (
        "aborted-read",
        """
        p sends a in T
        p ack a 0
        p ends T
      - p aborted T
      + p unsure T
        c polls 0:a
        log compacted
        """,
    ),
    "a part, and retention took the rest before it was read": (
        "intermediate-read unseen",
        """
        p sends a in T
        p sends b in T
        p ack a 0
        p ack b 1
        p ends T
        p committed T
        c polls 1:b
      - log 0:a 1:b
      + log 1:b start=1
        drained
        """,
    ),
    "a part, and compaction took the rest before it was read": (
        "intermediate-read unseen",
        """
        p sends a in T
        p sends b in T
        p ack a 0
        p ack b 1
        p ends T
        p committed T
        c polls 1:b
      - log 0:a 1:b compacted
      + log 1:b compacted
        drained
        """,
    ),
    "read, and of the transaction neither the beginning nor the end is noted": (
        "aborted-read precommitted-read",
        """
      - p begins T
        p sends a in T
        p ack a 0
        c polls 0:a
        log 0:a
        """,
    ),
}


@pytest.mark.parametrize("story", _STORIES)
def test_a_history_shows_its_fault_and_nothing_else(story: str) -> None:
    expected, text = _STORIES[story]
    wrong, right = histories(text)
    assert names(wrong) == set(expected.split())
    assert names(right) == set()
