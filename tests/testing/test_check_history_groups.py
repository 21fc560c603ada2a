"""Groups and pipelines: each history with its fault (`-`) shows these names and no other, and without it (`+`) none."""

from __future__ import annotations

from typing import Final

import pytest

from ottla.base.types import TopicPartition
from ottla.testing.history import History, LogRecord, check_history
from tests.testing.story import histories, names

_STORIES: Final[dict[str, tuple[str, str]]] = {
    "of two members": (
        "two-owners",
        """
        c1 assigned gen 3
      - c2 assigned gen 3
      + c2 assigned gen 4
        """,
    ),
    "of a member that came back": (
        "two-owners",
        """
      - c1 assigned gen 3
      + c1 assigned gen 3 as i
      - c2 assigned gen 3
      + c2 assigned gen 3 as i
        """,
    ),
    "of two members, each another partition": (
        "two-owners",
        """
        c1 assigned gen 3
      - c2 assigned gen 3 partition 0
      + c2 assigned gen 3 partition 1
        """,
    ),
    "of two static members": (
        "two-owners",
        """
        c1 assigned gen 3 as i
      - c2 assigned gen 3 as j
      + c2 assigned gen 3 as i
        """,
    ),
    "of two members whose client tells no generation": (
        "two-owners",
        """
      - c1 assigned gen 0
      + c1 assigned gen -1
      - c2 assigned gen 0
      + c2 assigned gen -1
        """,
    ),
    "of a new member, before the old one has given it up": (
        "two-owners",
        """
        c1 assigned gen 3
        c2 assigned gen 5
      - c1 revoked gen 5
      + c1 revoked gen 4
        """,
    ),
    "of a new member, and the old one was given more": (
        "two-owners",
        """
        c1 assigned gen 3
      + c1 revoked gen 3
        c2 assigned gen 4
        c1 assigned gen 6 partition 1
        """,
    ),
    "of a new member, and the old one has heard late that it lost its own": (
        "two-owners",
        """
        c1 assigned gen 3
        c2 assigned gen 5
      - c1 revoked gen 6
      + c1 revoked gen 6 lost yes
        """,
    ),
    "of two members, and the group was deleted in between": (
        "two-owners",
        """
        c1 assigned gen 3
      + began
        c2 assigned gen 3
        c1 revoked gen 4
        """,
    ),
    "of a member of an older generation that commits in a newer one": (
        "two-owners",
        """
        c1 assigned gen 1
        c2 assigned gen 2
      - c1 commits 1 gen 2
      + c1 commits 1 gen 1
        c2 commits 1 gen 2
        c1 killed
        """,
    ),
    "of a member whose commit in the newer generation was refused": (
        "two-owners",
        """
        c1 assigned gen 1
        c2 assigned gen 2
      - c1 commits 1 gen 2
      + c1 commits 1 gen 2 outcome failed
        """,
    ),
    "of a member that had given it up when it committed in the newer generation": (
        "two-owners",
        """
        c1 assigned gen 1
      + c1 revoked gen 1
        c2 assigned gen 2
        c1 commits 1/1 gen 2
        """,
    ),
    "of a member whose newer generation a transaction proves": (
        "two-owners",
        """
        c1 assigned gen 1
        c2 assigned gen 2
        c1 begins T
        c1 offsets 1 in T of c1 gen 2
        c1 ends T
      - c1 committed T
      + c1 unsure T
        """,
    ),
    "of a member that is known by its id alone in a transaction": (
        "two-owners",
        """
        c1 assigned gen 1
        c1 commits 1 gen 1
        c2 assigned gen 2
        x begins T
      - x offsets 1 in T of c1 gen 2
      + x offsets 1 in T of c2 gen 2
        x ends T
        x committed T
        """,
    ),
    "of a member that has committed before the group was deleted, and heard of it later": (
        "two-owners",
        """
      + c1 calls one
        began
      - c1 calls one
        c1 assigned gen 1
        c1 returns one
        c1 commits 1 gen 5 call one
        c2 assigned gen 2
        """,
    ),
    "of a member that keeps it while its epoch rises": (
        "two-owners",
        """
        c1 assigned gen 3
        c1 commits 1 gen 4
        c1 commits 2 gen 5
      - c2 assigned gen 5
        c1 revoked gen 5
      + c2 assigned gen 6
        """,
    ),
    "an input becomes two outputs": (
        "duplicate",
        """
        p sends a
        p ack a 0
        x polls 0:a
        x sends A from a
        x ack A 1/0
        x sends A2 from a
        x ack A2 1/1
        log 0:a
      - log1 0:A 1:A2
      + log1 0:A! 1:A2
        positions 1
        drained transforms
        """,
    ),
    "an input is passed over": (
        "lost-write",
        """
        p sends a
        p ack a 0
        x polls 0:a
      + x sends A from a
      + x ack A 1/0
        log 0:a
      - log1
      + log1 0:A
        positions 1
        drained transforms
        """,
    ),
    "an input is not processed at all": (
        "unprocessed",
        """
        p sends a
        p ack a 0
        x polls 0:a
      + x sends A from a
      + x ack A 1/0
        log 0:a
      - log1
      + log1 0:A
      - positions
      + positions 1
        drained transforms
        """,
    ),
    "an input is processed, and its offset is not committed": (
        "unprocessed",
        """
        p sends a
        p ack a 0
        x polls 0:a
        x sends A from a
        x ack A 1/0
        log 0:a
        log1 0:A
      - positions 0
      + positions 1
        drained transforms
        """,
    ),
    "an input is not processed, and nobody read the positions": (
        "unprocessed",
        """
        p sends a
        p ack a 0
        x polls 0:a
        x sends A from a
        x ack A 1/0
        log 0:a
      - log1 0:A!
      + log1 0:A
        drained transforms
        """,
    ),
    "an input that is not committed need not be processed": (
        "unprocessed unseen",
        """
        p sends a in T
        p ack a 0
        p ends T
        p unsure T
      - log 0:a
      + log 0:a!
        log1
        positions 0
        drained transforms
        """,
    ),
    "an old record that the log does not have any more": (
        "commit-ahead unseen",
        """
        p sends a
        p sends b
        p ack a 0
        p ack b 1
        c polls 1:b
        c commits 2
      - log 0:a 1:b
      + log 0:a 1:b start=1
        drained
        """,
    ),
    "a record that was left out, and another member goes on by a seek": (
        "lost-write",
        """
        p sends a
        p sends b
        p sends c
        p sends d
        p ack a 0
        p ack b 1
        p ack c 2
        p ack d 3
        c1 polls 0:a
      + c1 polls 1:b
        c1 assigned gen 1
        c1 polls 2:c
        c2 seeks 3
        c2 polls 3:d
        """,
    ),
}


@pytest.mark.parametrize("story", _STORIES)
def test_a_history_shows_its_fault_and_nothing_else(story: str) -> None:
    expected, text = _STORIES[story]
    wrong, right = histories(text)
    assert names(wrong) == set(expected.split())
    assert names(right) == set()


def test_v4_an_output_names_its_input_in_whichever_send() -> None:
    """The first send of the output has no source, and is aborted; the second one is committed, and has it."""
    history, inputs, outputs = History(), TopicPartition("in", 0), TopicPartition("out", 0)
    pipeline, member = history.producer("x"), history.consumer("c", group="g")
    history.producer("p").sent("a")
    history.producer("p").acknowledged("a", inputs, 0)
    member.polled([(inputs, 0, "a")])
    for txn, source, offset, commit in (("T1", None, 0, False), ("T2", "a", 2, True)):
        pipeline.began(txn, "x")
        pipeline.sent("A", txn=txn, source=source)
        pipeline.acknowledged("A", outputs, offset)
        pipeline.ending(txn, commit=commit)
        pipeline.ended(txn, "committed" if commit else "aborted")
    history.log(inputs, [(0, "a")])
    history.log(outputs, [LogRecord(0, "A", visible=False), LogRecord(2, "A")])
    history.positions("g", {inputs: 1})
    history.drained("g", [inputs], transforms=True)
    assert check_history(history) == []


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({"g1": "a1", "g2": "a2"}, []),
        ({"g1": "a1 b1", "g2": ""}, [("duplicate", "g1 is at 1"), ("lost-write", "g2 is at 1")]),
    ],
)
def test_v4_each_of_two_pipelines_makes_its_own_output_of_an_input(
    made: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    """The transaction of an output says for which group it commits offsets."""
    history, inputs, outputs = History(), TopicPartition("in", 0), TopicPartition("out", 0)
    history.producer("p").sent("a")
    history.producer("p").acknowledged("a", inputs, 0)
    log: list[str] = []
    for group, uids in made.items():
        history.consumer(f"c {group}", group=group).polled([(inputs, 0, "a")])
        pipeline = history.producer(f"x {group}")
        pipeline.began(f"T {group}", group)
        for uid in uids.split():
            pipeline.sent(uid, txn=f"T {group}", source="a")
            pipeline.acknowledged(uid, outputs, len(log))
            log.append(uid)
        pipeline.offsets_sent(f"T {group}", group, {inputs: 1}, member_id=group, generation=1)
        pipeline.ending(f"T {group}", commit=True)
        pipeline.ended(f"T {group}", "committed")
        history.positions(group, {inputs: 1})
        history.drained(group, [inputs], transforms=True)
    history.log(inputs, [(0, "a")])
    history.log(outputs, enumerate(log))
    found = check_history(history)
    assert [(each.name, each.what.partition("; ")[2]) for each in found] == expected
