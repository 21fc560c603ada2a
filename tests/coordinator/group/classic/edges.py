"""What a classic group answers to requests at the edge of sense. Part of the talks of `talks.py`."""

from __future__ import annotations

from typing import Final

from ottla.wire.apis import API, ApiKey
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from tests.coordinator.group.classic.conversation import APIS, Conversation


def refused_joins(talk: Conversation) -> None:
    """Joins that make no sense, while there is no group and while there is one."""
    for there_is_one in (False, True):
        if there_is_one:
            talk.alone()
        talk.join("", group_id="")
        talk.join("", group_id="", version=0)
        talk.join("", session_timeout_ms=499)
        talk.join("", session_timeout_ms=0)
        talk.join("", session_timeout_ms=-1)
        talk.join("", session_timeout_ms=1_800_001)
        talk.join("", session_timeout_ms=2**31 - 1, version=1)
        talk.join("", protocols={})
        talk.join("", protocols={}, version=0)
        talk.join("", protocol_type="")
        talk.join("", protocol_type="", version=2)
        talk.join("nobody")
        talk.join("nobody", version=0)
        talk.join("nobody", group_instance_id="i1")
        talk.join("nobody", group_instance_id="i1", version=5)
        talk.describe()
        talk.list_groups()
    talk.join("M0", session_timeout_ms=1)
    talk.join("M0", protocols={})
    talk.join("M0", protocol_type="other")
    talk.join("M0", protocol_type="")
    talk.join("", protocol_type="other")
    talk.join("", protocols={"c": b""})
    talk.join("", protocols={"c": b""}, version=3)
    talk.join("M0", group_instance_id="i1")
    talk.join("M0", group_id="")
    talk.beat("M0", 1)
    talk.describe()


def limits_of_a_join(talk: Conversation) -> None:
    """What is large or strange, and yet allowed. (Short and negative timeouts are over at once, or not: not here.)"""
    longest = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 2**31 - 1}
    talk.join("", **longest)
    talk.join("M0", **longest)
    talk.sync("M0", 1, {"M0": b""})
    talk.join("M0", protocols={"": b""})
    talk.join("M0", protocols={"a": b"", "": b""})
    talk.join("M0", protocols={"": b""})
    talk.sync("M0", 3, {"M0": b""}, protocol_name="")
    talk.describe()
    talk.join("M0", reason="r" * 300)
    talk.join("M0", protocols={"": b"", "n" * 300: b"m" * 300})
    talk.describe()
    talk.leave("M0")
    talk.join("", protocol_type="t" * 300, group_instance_id="i" * 300)
    talk.describe()


def before_there_is_a_group(talk: Conversation) -> None:
    """SyncGroup, Heartbeat and LeaveGroup of a group that nobody has joined."""
    talk.sync("", -1)
    talk.sync("", 0, version=0)
    talk.sync("M0", 1, group_id="")
    talk.sync("M0", 1, group_id="", version=2)
    talk.beat("", -1)
    talk.beat("", -1, version=0)
    talk.beat("M0", 1, group_id="")
    talk.beat("M0", 1, group_id="", version=1)
    talk.leave("M0")
    talk.leave("M0", version=0)
    talk.leave("", version=1)
    talk.leave("M0", group_id="")
    talk.leave("M0", group_id="", version=2)
    talk.leave()


def refused_syncs(talk: Conversation) -> None:
    """SyncGroup, Heartbeat and LeaveGroup that do not fit."""
    talk.alone()
    for version in range(6):
        talk.sync("M0", 2, version=version)
        talk.sync("nobody", 1, version=version)
    talk.sync("M0", 1, protocol_type=None)
    talk.sync("M0", 1, protocol_name=None)
    talk.sync("M0", 1, protocol_type=None, protocol_name=None)
    talk.sync("M0", 1, protocol_type="other")
    talk.sync("M0", 1, protocol_name="b")
    talk.sync("M0", 1, protocol_type="")
    talk.sync("M0", 1, protocol_name="")
    talk.sync("M0", -1)
    talk.sync("M0", 2**31 - 1)
    talk.sync("", 1)
    talk.sync("M0", 1, group_instance_id="i1")
    talk.sync("M0", 1, {"M0": b"other", "nobody": b"y"})
    for version in range(5):
        talk.beat("M0", 0, version=version)
        talk.beat("nobody", 1, version=version)
    talk.beat("", 1)
    talk.beat("M0", -1)
    talk.beat("M0", 2**31 - 1)
    talk.beat("M0", 1, group_instance_id="i1")
    talk.beat("M0", 1, group_id="another")
    for version in range(6):
        talk.leave("nobody", version=version)
    talk.leave()
    talk.leave("")
    talk.leave("/i1")
    talk.leave("M0/i1")
    talk.leave("nobody", "/i1", "M0", "M0")
    talk.describe()


def refused_offsets(talk: Conversation) -> None:
    """Commits, fetches and deletions that do not fit."""
    talk.forget("")
    for version in (2, 5, 7, 8, 9):
        talk.commit("", -1, 0, group_id="", version=version)
        talk.commit("nobody", -1, 0, version=version)
        talk.commit("nobody", 1, 0, version=version)
        talk.commit("", 0, 0, version=version)
        talk.fetch(0, version=version, group="")
    talk.delete_offsets("t", 0)
    talk.delete_offsets("t", 0, group_id="")
    talk.commit("", -2, 0)
    talk.commit("", -1, 99)
    talk.commit("", -1, -1)
    talk.commit("", -1, 0, topic="none")
    talk.commit("", -1, 0, topic="none", version=10)
    talk.commit("", -1, 0, topic="none", version=2)
    talk.commit("", -1, 0, 0)
    talk.commit("", -1)
    talk.commit("", -1, version=10)
    talk.commit("", -1, topic="none")
    talk.commit("", -1, topic="none", version=10)
    talk.commit("", -1, topics=())
    talk.commit("", -1, 0, offset=-1)
    talk.commit("", -1, 0, offset=-5)
    talk.commit("", -1, 0, offset=2**63 - 1)
    talk.commit("", -1, 0, metadata=None)
    talk.commit("", -1, 0, metadata="m" * 4096)
    talk.commit("", -1, 0, 1, metadata="m" * 4097)
    talk.fetch(0, 0)
    talk.fetch()
    talk.fetch(-1, 99)
    talk.fetch(0, topic="none")
    talk.fetch(0, topic="none", version=10)
    talk.fetch(0, topic="none", version=1)
    talk.fetch(topic=None)
    talk.fetch(topic=None, version=10)
    talk.fetch(0, member="nobody", epoch=1)
    talk.fetch(0, member="nobody", epoch=-1)
    talk.fetch(0, groups=())
    talk.fetch(0, require_stable=True)
    talk.delete_offsets("t", 0, 99, -1)
    talk.delete_offsets("none", 0)
    talk.delete_offsets("t")
    talk.delete_offsets("none")
    talk.delete_offsets("t", 0, topics=())
    talk.delete_group("", "none-such", "none-such")
    talk.delete_group(version=0)
    talk.fetch(0)


def refused_members_offsets(talk: Conversation) -> None:
    """The same in a group with a member."""
    talk.alone()
    talk.commit("", -1, 0)
    talk.commit("", -1, 0, version=2)
    talk.commit("M0", -1, 0)
    talk.commit("", 1, 0)
    talk.commit("M0", 1, 0, 99)
    talk.commit("M0", 2**31 - 1, 0)
    talk.commit("M0", -2, 0)
    talk.fetch(0, member="M0", epoch=1)
    talk.fetch(0, member="M0", epoch=7)
    talk.fetch(0, member="nobody", epoch=1)
    talk.delete_offsets("t", 0)


def consumers(talk: Conversation) -> None:
    """Members of the embedded consumer protocol: the coordinator reads what they subscribe to."""
    talk.join("", protocol_type="consumer", protocols={"range": talk.subscription("t")})
    talk.join("M0", protocol_type="consumer", protocols={"range": talk.subscription("t")})
    talk.sync("M0", 1, {"M0": b""}, protocol_type="consumer", protocol_name="range")
    talk.commit("M0", 1, 0, 1)
    talk.commit("M0", 1, 0, topic="u")
    talk.delete_offsets("t", 0, 1, 3)
    talk.delete_offsets("u", 0, 1)
    talk.describe()
    talk.join("M0", protocol_type="consumer", protocols={"range": b"\xff"})
    talk.sync("M0", 2, {"M0": b"\xff"}, protocol_type="consumer", protocol_name="range")
    talk.delete_offsets("t", 0)
    talk.join("M0", protocol_type="consumer", protocols={"range": b""})
    talk.sync("M0", 3, {"M0": b""}, protocol_type="consumer", protocol_name="range")
    talk.delete_offsets("t", 0)
    talk.leave("M0")
    talk.delete_offsets("t", 0)
    talk.list_groups(types=("classic",))
    talk.list_groups(types=("consumer",))
    talk.delete_group()
    talk.fetch(0, topic="u")


def lists(talk: Conversation) -> None:
    """Listing and describing what is there, what is not, and what makes no sense."""
    talk.alone()
    for version in range(7):
        talk.describe("", "none-such", version=version, operations=version >= 3)
    talk.describe(talk.group_id)
    for states in (("stable",), ("STABLE", "Empty"), ("Dead",), ("none",), ("",), ("Assigning",)):
        talk.list_groups(*states)
        talk.list_groups(*states, version=4)
    for types in (("Classic",), ("consumer", "classic"), ("none",), ("",), ("share",), ("streams",)):
        talk.list_groups(types=types)
    talk.list_groups("Stable", types=("classic",))
    talk.list_groups("Empty", types=("classic",))
    for version in range(3):
        talk.delete_group("", "none-such", version=version)
    talk.leave("M0")
    talk.list_groups("Empty", types=("classic",))
    talk.delete_group(talk.group_id)
    talk.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(()))
    talk.describe()


def broken(talk: Conversation) -> None:
    """Requests that are cut off or go on too long, in every version, and versions that there are not."""
    for key in APIS:
        api = API[key]
        for version in range(api.min_version, api.max_version + 1):
            talk.broken(key, version, talk.harmless(key, version))
        for version in sorted({-1, api.min_version - 1, api.max_version + 1, 2**15 - 1}):
            talk.unknown_version(key, version)


def spoilt(talk: Conversation) -> None:
    """Group ids that are null, of negative or of too large size; tags that nobody knows."""
    for key in APIS:
        api = API[key]
        for version in sorted({api.min_version, min(api.flexible_from, api.max_version), api.max_version}):
            talk.spoilt(key, version, talk.harmless(key, version))


EDGES: Final = (
    refused_joins,
    limits_of_a_join,
    before_there_is_a_group,
    refused_syncs,
    refused_offsets,
    refused_members_offsets,
    consumers,
    lists,
    broken,
    spoilt,
)
