"""Conversations about consumer groups that any Kafka group coordinator must answer alike (KIP-848).

`talks.txt` beside this file holds what Apache Kafka 4.3.0 answered; `tests/interop` asks it again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.coordinator.group.consumer.conversation import Conversation
from tests.coordinator.group.consumer.edges import EDGES
from tests.coordinator.group.talking import held, named, transcripts

_T: dict[str, tuple[int, ...]] = {"t": (0, 1, 2, 3)}


def _has_assignment(answer: Any) -> bool:
    return answer.assignment is not None or answer.error_code != 0  # after an error none comes


def alone(talk: Conversation) -> None:
    """One member, from its first heartbeat to its last."""
    talk.describe()
    talk.join("m1")
    talk.describe()
    talk.list_groups()
    talk.beat("m1", 2)
    talk.beat("m1", 2, owned=_T)
    talk.beat("m1", 2, "t", owned=_T, rebalance_ms=60_000)
    talk.join("m1")
    talk.describe(version=0)
    talk.beat("m1", -1)
    talk.describe()
    talk.list_groups("consumer", states=("empty",))
    talk.list_groups("classic")
    talk.beat("m1", -1)
    talk.beat("m1", 2)
    talk.join("m1")
    talk.describe()


def two(talk: Conversation) -> None:
    """A second member: the first gives up half, and only then the second gets it."""
    talk.join("m1")
    talk.join("m2")
    talk.describe()
    talk.beat("m1", 2, owned=_T)
    talk.describe()
    talk.beat("m2", 3, owned={})
    talk.beat("m1", 2)
    talk.beat("m1", 2, owned=_T)
    talk.beat("m1", 2, owned={"t": (0, 1)})
    talk.beat("m1", 3, owned={"t": (0, 1)})
    talk.beat("m2", 3, owned={})
    talk.describe()
    talk.beat("m2", 3, owned={"t": (2, 3)})
    talk.beat("m1", -1)
    talk.describe()
    talk.beat("m2", 3, owned={"t": (2, 3)})
    talk.describe()
    talk.beat("m2", 4, owned=_T)


def three(talk: Conversation) -> None:
    """More members than two, and one that leaves in between."""
    talk.join("m1", "t", "u", assignor="range")
    talk.join("m2", "t", "u")
    talk.join("m3", "t", "u")
    talk.describe()
    talk.beat("m1", 2, owned={"t": (0, 1, 2, 3), "u": (0, 1)})
    talk.describe()
    talk.beat("m2", -1)
    talk.describe()
    talk.beat("m3", 4, owned={})
    talk.describe()


def fenced(talk: Conversation) -> None:
    """Wrong epochs, and the epoch before."""
    talk.join("m1")
    talk.beat("m1", 1)
    talk.beat("m1", 3)
    talk.beat("m2", 3)
    talk.beat("m1", 0)
    talk.join("m2")
    talk.beat("m1", 2, owned=_T)
    talk.beat("m1", 2, owned={"t": (0, 1)})
    talk.beat("m1", 2, owned={"t": (0, 1)})
    talk.beat("m1", 2, owned={"t": (0,)})
    talk.beat("m1", 2, owned={"t": (2,)})
    talk.beat("m1", 2)
    talk.beat("m1", 1, owned={})
    talk.describe()


def refused(talk: Conversation) -> None:
    """Requests that make no sense."""
    talk.beat("m1", 2)
    talk.beat("m1", -1)
    talk.beat("m1", -2)
    talk.beat("m1", -2, instance="i1")
    talk.beat("m1", -3)
    talk.beat("", 0, "t", owned={}, rebalance_ms=100)
    talk.beat("", 2, "t", version=0)
    talk.beat("", -1, version=0)
    talk.beat("m1", 0, "t", owned={})
    talk.beat("m1", 0, "t", rebalance_ms=100)
    talk.beat("m1", 0, "t", owned=_T, rebalance_ms=100)
    talk.beat("m1", 0, owned={}, rebalance_ms=100)
    talk.beat("m1", 0, "t", owned={}, rebalance_ms=100, instance="")
    talk.beat("m1", 0, "t", owned={}, rebalance_ms=100, rack=" ")
    talk.beat("m1", 0, "t", owned={}, rebalance_ms=100, assignor="mine")
    talk.beat("m1", 0, "t", owned={}, rebalance_ms=100, regex="(")
    talk.describe()
    talk.list_groups()


def older_version(talk: Conversation) -> None:
    """Version 0 lets the broker make the member id."""
    talk.join("", version=0)
    talk.beat("M0", 2, version=0)
    talk.describe(version=0)
    talk.join("m2", version=0)
    talk.beat("M0", -1, version=0)
    talk.describe()


def nothing(talk: Conversation) -> None:
    """Members that subscribe to nothing, or to what is not there."""
    talk.join("m1", "")
    talk.describe()
    talk.join("m2", "none")
    talk.describe()
    talk.beat("m2", 2, "t", owned={})
    talk.describe()


def assignors(talk: Conversation) -> None:
    """Members choose the assignor, the majority wins."""
    talk.join("m1", assignor="range")
    talk.describe()
    talk.join("m2", "t", "u")
    talk.describe()
    talk.beat("m2", 3, assignor="uniform", owned={})
    talk.describe()
    talk.beat("m2", 3, assignor="range", owned={})
    talk.describe()


def subscriptions(talk: Conversation) -> None:
    """A member that changes its mind."""
    talk.join("m1")
    talk.beat("m1", 2, "u", owned=_T)
    talk.describe()
    talk.beat("m1", 2, owned={})
    talk.describe()
    talk.beat("m1", 3, "t", "u", owned={"u": (0, 1)})
    talk.describe()
    talk.beat("m1", 4, "", owned={"t": (0, 1, 2, 3), "u": (0, 1)})
    talk.describe()
    talk.beat("m1", 4, owned={})
    talk.describe()


def static(talk: Conversation) -> None:
    """A static member goes for a while, and comes back as another."""
    talk.join("m1", instance="i1")
    talk.join("m2", instance="i2")
    talk.beat("m1", 2, owned={"t": (0, 1)}, instance="i1")
    talk.beat("m1", 2, owned={"t": (0, 1)}, instance="i1")
    talk.beat("m2", 3, owned={}, instance="i2")
    talk.describe()
    talk.join("m3", instance="i2")
    talk.beat("m3", 3, instance="i2")
    talk.beat("m2", 3)
    talk.beat("m2", 3, instance="i9")
    talk.beat("m2", -2, instance="i2")
    talk.describe()
    talk.beat("m2", 3, instance="i2")
    talk.join("m3", instance="i2")
    talk.describe()
    talk.beat("m3", 3, owned={"t": (2, 3)}, instance="i2")
    talk.beat("m2", -2, instance="i2")
    talk.beat("m3", -1, instance="i2")
    talk.describe()


def static_changes(talk: Conversation) -> None:
    """A static member that comes back with another subscription."""
    talk.join("m1", instance="i1")
    talk.beat("m1", -2, instance="i1")
    talk.join("m2", "u", instance="i1")
    talk.describe()
    talk.beat("m2", 3, owned={}, instance="i1")
    talk.describe()


def partitions_come(talk: Conversation) -> None:
    """A topic gets more partitions, another one is made, one is deleted."""
    talk.join("m1", "t", "v")
    talk.make_topic("t", 6)
    talk.beat_until(_has_assignment, "m1", 2)
    talk.describe()
    talk.make_topic("v", 1)
    talk.beat_until(_has_assignment, "m1", 3)
    talk.describe()
    talk.delete_topic("t")
    talk.beat_until(_has_assignment, "m1", 4)
    talk.describe()
    talk.beat("m1", 4, owned={"v": (0,)})
    talk.describe()


def regex_alone(talk: Conversation) -> None:
    """One member that subscribes to a regular expression."""
    both = {"t": (0, 1, 2, 3), "u": (0, 1)}
    talk.beat("m1", 0, regex="[tuw]~", owned={}, rebalance_ms=60_000)
    talk.beat_until(_has_assignment, "m1", 1)  # the pattern is matched beside: until then the member stays where it is
    talk.describe()
    talk.beat("m1", 2, owned=both)
    talk.beat("m1", 2, regex="(", owned=both)
    talk.describe()
    talk.beat("m1", 2, regex="", owned=both)
    talk.describe()
    talk.beat("m1", 2, owned={})
    talk.describe()
    talk.beat("m1", 2, owned={})


def offsets(talk: Conversation) -> None:
    """Offsets with member epochs."""
    talk.commit("", -1, 1, 0)
    talk.fetch(None, -1, 0)
    talk.join("m1")
    talk.fetch(None, -1, 0)
    talk.fetch("m1", 2, 0)
    talk.fetch("m1", 1, 0)
    talk.fetch("m1", 3, 0)
    talk.fetch("m2", 2, 0)
    talk.fetch("m1", 2, 0, version=10)
    talk.commit("", -1, 1, 0)
    talk.commit("m1", 2, 7, 0, 1)
    talk.commit("m1", 2, 7, 0, 9)
    talk.commit("m1", 3, 7, 0)
    talk.commit("m1", 1, 7, 0)
    talk.commit("m2", 2, 7, 0)
    talk.commit("m1", 2, 7, 0, version=8)
    talk.commit("m1", 2, 8, 2, version=10)
    talk.fetch("m1", 2, 0, 1, 2, 3, version=10)
    talk.join("m2")
    talk.beat("m1", 2, owned=_T)
    talk.commit("m1", 2, 9, 0, 1, 2, 3)
    talk.beat("m1", 2, owned={"t": (0, 1)})
    talk.commit("m1", 2, 10, 0, 1)
    talk.commit("m1", 2, 10, 0, 3)
    talk.commit("m1", 1, 10, 0)
    talk.beat("m2", 3, owned={})
    talk.commit("m2", 2, 11, 2)
    talk.commit("m2", 3, 11, 2)
    talk.fetch(None, -1, 0, 1, 2, 3)
    talk.delete_offsets("t", 0)
    talk.delete_offsets("u", 0)
    talk.delete_group()
    talk.beat("m1", -1)
    talk.beat("m2", -1)
    talk.delete_offsets("t", 0)
    talk.delete_group()
    talk.fetch(None, -1, 0)
    talk.describe()


def other_kinds(talk: Conversation) -> None:
    """What the classic protocol's requests find, and a group that was a classic one."""
    talk.commit("", -1, 3, 0)
    talk.list_groups()
    talk.describe()
    talk.describe_classic()
    talk.beat("m1", 2)
    talk.join("m1")
    talk.fetch("m1", 2, 0)
    talk.describe_classic()
    talk.describe_classic(version=5)
    talk.list_groups()
    talk.beat("m1", -1)
    talk.describe_classic()
    talk.delete_group()
    talk.describe_classic()


def mixed(talk: Conversation) -> None:
    """A member of the classic protocol in a consumer group: it is told to join again until it has its part."""
    talk.join("m1")
    talk.classic_join("")
    talk.classic_join("M0")
    talk.classic_sync("M0", 3)
    talk.classic_beat("M0", 3)
    talk.describe()
    talk.beat("m1", 2, owned=_T)
    talk.beat("m1", 2, owned={"t": (0, 1)})
    talk.classic_beat("M0", 3)
    talk.classic_join("M0")
    talk.classic_sync("M0", 3)
    talk.classic_sync("M0", 2)
    talk.classic_sync("M0", 3, protocol="sticky")
    talk.classic_sync("m1", 3)
    talk.classic_beat("M0", 2)
    talk.classic_beat("m1", 3)
    talk.classic_beat("m9", 3)
    talk.describe()
    talk.commit("M0", 3, 5, 2, 3)
    talk.commit("M0", 4, 5, 2)
    talk.commit("M0", 2, 5, 2)
    talk.commit("M0", 3, 5, 2, version=7)
    talk.join("m2", "u")
    talk.beat("m1", 3, owned={"t": (0, 1)})
    talk.classic_beat("M0", 3)
    talk.classic_sync("M0", 3)
    talk.describe()
    talk.beat("m2", -1)
    talk.classic_leave("M0", "m9")
    talk.describe()
    talk.beat("m1", 4, owned={"t": (0, 1)})
    talk.describe()


def up(talk: Conversation) -> None:
    """A classic group becomes a consumer group when a member of the consumer protocol joins."""
    talk.classic_join("")
    talk.classic_join("M0")
    talk.classic_sync("M0", 1, gives={"M0": {"t": (0, 1, 2, 3)}})
    talk.describe_classic()
    talk.list_groups()
    talk.join("m1")
    talk.list_groups()
    talk.describe()
    talk.describe_classic()
    talk.classic_beat("M0", 1)
    talk.classic_join("M0", owned=_T)
    talk.classic_sync("M0", 1)
    talk.classic_beat("M0", 1)
    talk.classic_join("M0", owned={"t": (0, 1)})
    talk.classic_sync("M0", 2)
    talk.describe()
    talk.beat("m1", 2, owned={})
    talk.describe()
    talk.classic_beat("M0", 2)


def down(talk: Conversation) -> None:
    """The last member of the consumer protocol leaves: the others are a classic group again, and rebalance."""
    talk.join("m1")
    talk.classic_join("")
    talk.classic_join("M0")
    talk.beat("m1", 2, owned=_T)
    talk.beat("m1", 2, owned={"t": (0, 1)})
    talk.classic_join("M0")
    talk.classic_sync("M0", 3)
    talk.describe()
    talk.beat("m1", -1)
    talk.list_groups()
    talk.describe()
    talk.describe_classic()
    talk.classic_beat("M0", 3)
    talk.classic_join("M0", owned={"t": (2, 3)})
    talk.classic_sync("M0", 4, gives={"M0": {"t": (0, 1, 2, 3)}})
    talk.describe_classic()
    talk.classic_leave("M0")
    talk.list_groups()


def by_replacement(talk: Conversation) -> None:
    """A static member comes back with the classic protocol."""
    talk.join("m1", instance="i1")
    talk.classic_join("", instance="i1")
    talk.list_groups()
    talk.describe_classic()
    talk.beat("m1", 2, instance="i1")


def static_mixed(talk: Conversation) -> None:
    """A static member changes its protocol while others stay, and back."""
    talk.join("m1", instance="i1")
    talk.join("m2", instance="i2")
    talk.beat("m1", 2, owned=_T, instance="i1")
    talk.beat("m1", 2, owned={"t": (0, 1)}, instance="i1")
    talk.beat("m2", 3, owned={}, instance="i2")
    talk.classic_join("", instance="i1")
    talk.classic_sync("M0", 3, instance="i1")
    talk.describe()
    talk.beat("m1", 3, owned={"t": (0, 1)}, instance="i1")
    talk.join("m3", instance="i1")
    talk.describe()
    talk.classic_beat("M0", 3)
    talk.classic_leave("/i1")
    talk.describe()


def empties(talk: Conversation) -> None:
    """A group without members gives way to any protocol."""
    talk.join("m1")
    talk.beat("m1", -1)
    talk.list_groups()
    talk.classic_join("")
    talk.list_groups()
    talk.describe()
    talk.classic_join("M0")
    talk.classic_sync("M0", 1, gives={"M0": {"t": (0, 1)}})
    talk.classic_leave("M0")
    talk.list_groups()
    talk.join("m1")
    talk.list_groups()
    talk.describe()


def no_consumers(talk: Conversation) -> None:
    """A classic group of others than consumers stays one, and they do not get into a consumer group."""
    talk.classic_join("", protocol_type="connect")
    talk.classic_join("M0", protocol_type="connect")
    talk.join("m1")
    talk.list_groups()
    talk.classic_sync("M0", 1, gives={"M0": {}})
    talk.join("m1")
    talk.classic_leave("M0")
    talk.join("m1")
    talk.classic_join("", protocol_type="connect")
    talk.classic_join("m7", protocol_type="connect")
    talk.classic_join("m7", "t", "u")
    talk.describe()


TALKS = named(
    (
        alone,
        two,
        three,
        fenced,
        refused,
        older_version,
        nothing,
        assignors,
        subscriptions,
        static,
        static_changes,
        partitions_come,
        regex_alone,
        offsets,
        other_kinds,
        mixed,
        up,
        down,
        by_replacement,
        static_mixed,
        empties,
        no_consumers,
        *EDGES,
    )
)


def talk(name: str, port: int) -> list[str]:
    """The transcript of one talk with the broker at `port`."""
    return held(Conversation(name, port), TALKS[name])


def recorded() -> dict[str, list[str]]:
    """The transcripts in `talks.txt`, by name."""
    return transcripts(Path(__file__).with_name("talks.txt"))
