"""Conversations about classic groups that any Kafka group coordinator must answer alike, field by field.

`talks.txt` beside this file holds what Apache Kafka 4.3.0 answered; `tests/interop` asks it again, and
`python -m tests.interop.record_group_talks` writes it anew. What depends on time (a session that ends) is not here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.coordinator.group.classic.conversation import Conversation
from tests.coordinator.group.classic.edges import EDGES
from tests.coordinator.group.talking import held, named, transcripts

_MEMBER_ID_REQUIRED_FROM: Final = 4


def every_version(talk: Conversation) -> None:
    """One member's life in each version of each request."""
    for version in range(10):
        generation = 2 * version + 1
        member = f"M{version}"
        talk.join("", version=version)
        if version >= _MEMBER_ID_REQUIRED_FROM:
            talk.join(member, version=version)
        talk.describe(version=min(version, 6))
        talk.sync(member, generation, {member: b"x"}, version=min(version, 5))
        talk.beat(member, generation, version=min(version, 4))
        talk.describe(version=min(version, 6), operations=version >= 3)
        talk.list_groups(version=min(version, 5))
        talk.delete_group(version=min(version, 2))
        talk.leave(member, version=min(version, 5))
        talk.list_groups(version=min(version, 5))
        talk.delete_offsets("t", 0)


def offsets_every_version(talk: Conversation) -> None:
    """Offsets in each version, of a group without members and of one with a member."""
    for version in range(2, 11):
        talk.commit("", -1, 0, 1, offset=version, metadata=f"v{version}", version=version)
    for version in range(1, 11):
        talk.fetch(0, 1, 3, version=version)
        if version > 1:
            talk.fetch(topic=None, version=version)
    talk.alone()
    for version in range(2, 11):
        talk.commit("M0", 1, 2, offset=10 * version, version=version)
        talk.commit("M0", 2, 2, version=version)
    for version in range(1, 11):
        talk.fetch(2, version=version)


def two(talk: Conversation) -> None:
    """A second member: every request in every state of the group."""
    talk.beat("M0", 1)
    talk.alone()
    talk.join("", by="B")
    talk.describe()
    talk.beat("M1", 1)
    talk.sync("M1", 1)
    second = talk.joining("M1", by="B")
    talk.until_state("PreparingRebalance")
    talk.describe()
    talk.list_groups("PreparingRebalance")
    talk.list_groups("Stable")
    talk.beat("M0", 1)
    talk.beat("M0", 2)
    talk.beat("M9", 1)
    talk.sync("M0", 1)
    talk.sync("M0", 2)
    talk.sync("M9", 1)
    talk.commit("M0", 1, 0)
    talk.commit("M0", 0, 0)
    talk.commit("M9", 1, 0)
    talk.delete_group()
    talk.join("M0", reason="told to")
    talk.hear(second)
    talk.describe()
    talk.list_groups("CompletingRebalance")
    talk.beat("M0", 2)
    talk.beat("M0", 1)
    talk.commit("M0", 2, 0)
    talk.commit("M0", 1, 0)
    talk.join("M1", by="B")
    talk.join("M0")
    follower = talk.syncing("M1", 2, {}, by="B")
    talk.sync("M0", 2, {"M0": b"x", "M1": b"y"})
    talk.hear(follower)
    talk.describe()
    talk.sync("M0", 2)
    talk.sync("M1", 2, {"M0": b"z", "M1": b"z"}, by="B")
    talk.sync("M0", 1)
    talk.join("M1", by="B")
    talk.beat("M0", 2)
    talk.beat("M1", 2)
    talk.beat("M1", 1)
    talk.leave("M0")
    talk.describe()
    talk.beat("M1", 2)
    talk.join("M1", by="B")
    talk.sync("M1", 3, {"M0": b"gone"}, by="B")
    talk.describe()
    talk.leave("M1")
    talk.describe()
    talk.beat("M1", 3)
    talk.sync("M1", 3)
    talk.join("M1")
    talk.leave("M1")
    talk.delete_group()
    talk.delete_group()
    talk.describe()


def leader_rejoins(talk: Conversation) -> None:
    """In a stable group a leader's join makes a new generation, a follower's only when its protocols change."""
    talk.alone()
    talk.join("M0")
    talk.beat("M0", 1)
    talk.beat("M0", 2)
    talk.sync("M0", 2, {})
    talk.join("M0", protocols={"b": b"2"})
    talk.sync("M0", 3, {"M0": b"x"}, protocol_name="a")
    talk.sync("M0", 3, {"M0": b"x"}, protocol_name="b")
    talk.describe()
    talk.join("M0", version=0)
    talk.join("M0", version=0)
    talk.sync("M0", 4, {"M0": b"x"}, version=0)
    talk.describe(version=0)


def followers_change(talk: Conversation) -> None:
    """A follower that supports something else: the others must join again, and the protocol is voted for."""
    talk.alone()
    talk.join("", by="B")
    second = talk.joining("M1", protocols={"b": b"3", "a": b"4"}, by="B")
    talk.until_state("PreparingRebalance")
    talk.join("M0")
    talk.hear(second)
    talk.sync("M0", 2, {"M0": b"x", "M1": b"y"})
    changed = talk.joining("M1", protocols={"b": b"3"}, by="B")
    talk.until_state("PreparingRebalance")
    talk.describe()
    talk.join("M0")
    talk.hear(changed)
    talk.join("M0", protocols={"c": b"1"})
    talk.join("M0", protocols={})
    talk.join("M0", protocol_type="other")
    talk.join("", protocols={"c": b"1"}, by="C")
    talk.describe()
    talk.sync("M0", 3, {"M0": b"p"}, protocol_name="b")
    talk.sync("M1", 3, protocol_name="b", by="B")
    talk.describe()


def leaving_early(talk: Conversation) -> None:
    """A member that was only given an id, or whose join or sync waits, goes."""
    talk.join("")
    talk.leave("M0")
    talk.describe()
    talk.join("M0")
    talk.alone("M1")
    talk.join("", by="B")
    waits = talk.joining("M2", by="B")
    talk.until_state("PreparingRebalance")
    talk.leave("M1")
    talk.hear(waits)
    talk.describe()
    talk.leave("M2")
    talk.describe()


def static(talk: Conversation) -> None:
    """Static members: they come at once, and come back as others."""
    talk.join("", group_instance_id="i1")
    talk.sync("M0", 1, {"M0": b"x"}, group_instance_id="i1")
    talk.describe()
    talk.describe(version=3)
    talk.beat("M0", 1, group_instance_id="i1")
    talk.beat("M0", 1)
    talk.beat("M0", 1, group_instance_id="i2")
    talk.beat("M0", 0, group_instance_id="i1")
    talk.beat("nobody", 1, group_instance_id="i1")
    talk.beat("", 1, group_instance_id="i1")
    talk.sync("nobody", 1, group_instance_id="i1")
    talk.sync("M0", 1, group_instance_id="i2")
    talk.commit("nobody", 1, 0, group_instance_id="i1")
    talk.commit("M0", 1, 0, group_instance_id="i1")
    talk.commit("M0", 1, 0, group_instance_id="i2")
    talk.commit("M0", 2, 0, group_instance_id="i1")
    talk.join("nobody", group_instance_id="i1")
    talk.join("nobody", group_instance_id="i2")
    talk.join("M0", group_instance_id="i2")
    for version in (5, 6, 7, 8, 9):
        talk.join("", group_instance_id="i1", version=version)
        talk.beat(f"M{version - 5}", 1, group_instance_id="i1")
        talk.beat(f"M{version - 5}", 1)
        talk.sync(f"M{version - 4}", 1, group_instance_id="i1")
        talk.describe()
    talk.join("M0", group_instance_id="i1")
    talk.leave("M0/i1")
    talk.leave("nobody/i1")
    talk.leave("M5/i2")
    talk.leave("/i2")
    talk.join("M5", group_instance_id="i1")
    talk.join("", group_instance_id="i1", protocols={"b": b"2"})
    talk.describe()
    talk.sync("M6", 3, {"M6": b"z"}, group_instance_id="i1", protocol_name="b")
    talk.leave("/i1", version=3)
    talk.leave("/i1", version=4)
    talk.describe()


def static_two(talk: Conversation) -> None:
    """A follower and a leader with instance ids, which come back while the group is stable, and while it is not."""
    talk.join("", group_instance_id="i1")
    talk.sync("M0", 1, {"M0": b"x"}, group_instance_id="i1")
    second = talk.joining("", group_instance_id="i2", by="B")
    talk.until_state("PreparingRebalance")
    talk.beat("M0", 1, group_instance_id="i1")
    talk.join("M0", group_instance_id="i1")
    talk.hear(second)
    talk.describe()
    again = talk.joining("", group_instance_id="i2", by="B")
    talk.until_state("PreparingRebalance")
    talk.describe()
    talk.beat("M1", 2, group_instance_id="i2")
    talk.join("M0", group_instance_id="i1")
    talk.hear(again)
    talk.describe()


def full(talk: Conversation) -> None:
    """A group that has as many members as it may (`group.max.size` is 3 here)."""
    talk.join("", group_instance_id="i0")
    talk.sync("M0", 1)
    second = talk.joining("", group_instance_id="i1", by="B")
    talk.until_state("PreparingRebalance")
    talk.join("M0", group_instance_id="i0")
    talk.hear(second)
    third = talk.joining("", group_instance_id="i2", by="C")
    talk.until_state("PreparingRebalance")
    first = talk.joining("M0", group_instance_id="i0", by="A")
    talk.join("M1", group_instance_id="i1", by="B")
    talk.hear(first)
    talk.hear(third)
    talk.join("")
    talk.join("", group_instance_id="i3")
    talk.join("nobody")
    talk.sync("M0", 3, {"M0": b"0", "M1": b"1", "M2": b"2"})
    talk.join("")
    talk.join("", group_instance_id="i3", version=5)
    talk.join("", group_instance_id="i1", by="B")
    talk.describe()


TALKS = named(
    (
        every_version,
        offsets_every_version,
        two,
        leader_rejoins,
        followers_change,
        leaving_early,
        static,
        static_two,
        full,
        *EDGES,
    )
)


def talk(name: str, port: int) -> list[str]:
    """The transcript of one talk with the broker at `port`."""
    return held(Conversation(name, port), TALKS[name])


def recorded() -> dict[str, list[str]]:
    """The transcripts in `talks.txt`, by name."""
    return transcripts(Path(__file__).with_name("talks.txt"))
