"""What a decision means for a group's history: who came, who went and why, when a rebalance began and ended.

The port between kinds of groups and `group.history`. Each kind tells these facts with its decisions, and the runtime
hands them on once a decision holds. A third kind of group tells the same facts, and needs to touch nothing else.

Facts are cheap to tell: what a member has is passed on as the kind keeps it (`Owned`), and read only when the history
is written, off the path of an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

#: What one member has: the bytes of a ConsumerProtocolAssignment, or partitions by topic id. It must not change later.
Owned: TypeAlias = bytes | Mapping[bytes, Collection[int]]
#: Partitions by topic id. It must not change later.
Parts: TypeAlias = Mapping[bytes, Collection[int]]


class Why(Enum):
    """Why a member is not in the group any more. All but the first are expulsions."""

    #: It left by itself, or an administrator removed it (LeaveGroup, or a heartbeat with epoch -1 or -2).
    LEFT = "left"
    #: Neither heartbeat nor poll in `session.timeout.ms`.
    SESSION_TIMEOUT = "session-timeout"
    #: It did not join the rebalance again, or give up its partitions, in its rebalance timeout.
    REBALANCE_TIMEOUT = "rebalance-timeout"
    #: It joined the generation, and did not ask for its assignment in its rebalance timeout.
    SYNC_TIMEOUT = "sync-timeout"
    #: Another member has taken its `group.instance.id` (KIP-345).
    INSTANCE_REPLACED = "instance-replaced"
    #: The group had more members than `group.max.size` when it rebalanced.
    GROUP_MAX_SIZE = "group-max-size"


class Who(NamedTuple):
    """A member, as the history names it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class Joined(NamedTuple):
    """A new member; `replaces` is the id of the static member whose place it takes."""

    who: Who
    replaces: str | None = None


class Gone(NamedTuple):
    """A member has left or is expelled. `text` is for people."""

    who: Who
    why: Why
    text: str = ""


class Waits(NamedTuple):
    """A member has joined the rebalance, and waits for its assignment."""

    member_id: str


class Lacks(NamedTuple):
    """A member has not got all that it shall have, because others have not given it up yet (KIP-848)."""

    member_id: str
    wanted: Parts
    has: Parts


class LacksNothing(NamedTuple):
    """A member does not wait for others any more."""

    member_id: str


class Gave(NamedTuple):
    """Of these partitions a member has given up all that are not its own any more (KIP-848)."""

    member_id: str
    partitions: Parts


class Began(NamedTuple):
    """A rebalance. `before`: who had what; None when one was going on already, and begins once more."""

    reason: str
    before: Mapping[str, Owned] | None


class Settled(NamedTuple):
    """All members have, or can fetch, what is theirs. `after` is None when nobody but the members can read it."""

    generation: int
    protocol: str | None
    members: int
    after: Mapping[str, Owned] | None


class Emptied(NamedTuple):
    """The last member is gone."""

    generation: int


class Converted(NamedTuple):
    """The group is now one of another kind (KIP-848, online migration)."""

    kind: str


class Deleted(NamedTuple):
    """The group was deleted."""


Fact: TypeAlias = Joined | Gone | Waits | Lacks | LacksNothing | Gave | Began | Settled | Emptied | Converted | Deleted


class GroupFacts(NamedTuple):
    """What a decision means for one group. `generation`: the group's (or its epoch) when it was decided."""

    group_id: str
    kind: str
    generation: int
    facts: tuple[Fact, ...]
