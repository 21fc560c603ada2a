"""Seeks forward: each history with its fault (`-`) shows these names and no other, and without it (`+`) none."""

from __future__ import annotations

from typing import Final

import pytest

from ottla.base.types import TopicPartition
from ottla.testing.history import History, check_history
from tests.testing.story import histories, names

_WRITTEN: Final = "\n".join(f"p sends {uid}\np ack {uid} {offset}" for offset, uid in enumerate("abcdef"))
_LOG: Final = "log " + " ".join(f"{offset}:{uid}" for offset, uid in enumerate("abcdef"))

_STORIES: Final[dict[str, tuple[str, str]]] = {
    "a position behind a seek back and a seek forward": (
        "commit-ahead",
        f"""
        {_WRITTEN}
        c polls 4:e
        c seeks 1
        c polls 1:b
      - c assigned gen 1
      + c seeks 5
        c commits 5
        c polls 5:f
        {_LOG}
        """,
    ),
    "read behind a seek back and a seek forward, and nobody has read the log back": (
        "lost-write",
        f"""
        {_WRITTEN}
        c polls 4:e
        c seeks 1
        c polls 1:b
      - c assigned gen 1
      + c seeks 5
        c polls 5:f
        """,
    ),
    "passed by a seek of one reader, and another one of its group is further on": (
        "lost-write",
        f"""
        {_WRITTEN}
        c1 polls 0:a
        c2 polls 4:e
      - c1 assigned gen 1
      + c1 seeks 5
        c1 polls 5:f
        """,
    ),
    "left out by another member before a seek of one that was behind it": (
        "lost-write",
        f"""
        {_WRITTEN}
        c1 polls 0:a
        c2 assigned gen 2
      - c2 polls 2:c 3:d
      + c2 polls 1:b 2:c 3:d
        c1 assigned gen 3
        c1 seeks 5
        c1 polls 5:f
        """,
    ),
    "read behind a seek back and one to who knows where": (
        "lost-write",
        f"""
        {_WRITTEN}
        c polls 4:e
        c seeks 1
        c polls 1:b
      - c assigned gen 1
      + c seeks ?
        c polls 5:f
        """,
    ),
    "a position behind a seek back, taken over by a member that seeks forward": (
        "commit-ahead",
        f"""
        {_WRITTEN}
        c1 polls 4:e
        c1 seeks 1
        c1 polls 1:b
        c2 assigned gen 2
      + c2 seeks 5
        c2 commits 5 gen 2
        {_LOG}
        """,
    ),
}


@pytest.mark.parametrize("read_back", [True, False])
def test_v4_a_seek_back_and_one_forward_pass_what_is_between_them(*, read_back: bool) -> None:
    """Seven records are between the two: nobody was given them, and nobody has lost them."""
    history, tp = History(), TopicPartition("t", 0)
    writer, reader = history.producer("p"), history.consumer("c", group="g")
    for offset in range(14):
        writer.sent(f"r{offset}")
        writer.acknowledged(f"r{offset}", tp, offset)
    reader.polled([(tp, 10, "r10"), (tp, 11, "r11")])
    reader.sought({tp: 2})
    reader.polled([(tp, 2, "r2")])
    reader.sought({tp: 12})
    reader.committed({tp: 12})
    reader.polled([(tp, 12, "r12"), (tp, 13, "r13")])
    if read_back:
        history.log(tp, [(offset, f"r{offset}") for offset in range(14)])
    assert check_history(history) == []


@pytest.mark.parametrize("story", _STORIES)
def test_a_history_shows_its_fault_and_nothing_else(story: str) -> None:
    expected, text = _STORIES[story]
    wrong, right = histories(text)
    assert names(wrong) == set(expected.split())
    assert names(right) == set()
