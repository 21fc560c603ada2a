"""The states of a consumer group and of its members (KIP-848), each as one table.

A group's state is not kept: it follows from its epochs and members (`state_of`). A change of epoch is seen as soon as
its record is in the log.

    Empty ──a member joins──▶ Assigning ──target computed──▶ Reconciling ──all members have their part──▶ Stable

A member is told to give up partitions first (UnrevokedPartitions) and stays in its epoch until it has. Then it is in
the epoch of the target, and gets what is free. What others still have it waits for (UnreleasedPartitions).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final

#: Member epochs with a meaning of their own: to join, to leave, and to leave for a while as a static member.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2


class GroupState(Enum):
    """The states of a consumer group, named as ListGroups and ConsumerGroupDescribe say them."""

    #: No members; there may be offsets.
    EMPTY = "Empty"
    #: The group has changed, and the target assignment of its epoch is not computed yet.
    ASSIGNING = "Assigning"
    #: There is a target of the group's epoch; some members do not have their part of it yet.
    RECONCILING = "Reconciling"
    #: Every member has its part of the target.
    STABLE = "Stable"


#: The automaton of a group: which state may follow which, record by record. `docs/automata.md` draws it from here.
TRANSITIONS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.ASSIGNING, GroupState.RECONCILING}),
    GroupState.ASSIGNING: frozenset({GroupState.EMPTY, GroupState.RECONCILING}),
    GroupState.RECONCILING: frozenset({GroupState.EMPTY, GroupState.ASSIGNING, GroupState.STABLE}),
    GroupState.STABLE: frozenset({GroupState.ASSIGNING, GroupState.RECONCILING}),
}


class MemberState(IntEnum):
    """The states of a member, with their numbers in Kafka's records."""

    #: The member has its part of the target of its epoch.
    STABLE = 0
    #: The member must give up partitions before it can go on.
    UNREVOKED_PARTITIONS = 1
    #: The member is in the target's epoch, and waits for partitions that others have not given up yet.
    UNRELEASED_PARTITIONS = 2
    #: A later version of Kafka wrote a state that is not known here: the member must join again.
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state with this number; UNKNOWN for one that is not known."""
        return cls(number) if number in _NUMBERS else cls.UNKNOWN


_NUMBERS: Final = frozenset(int(each) for each in MemberState)

#: The automaton of a member. A target can change between two heartbeats, so each known state may follow each other.
MEMBER_TRANSITIONS: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    state: frozenset(MemberState) - {state, MemberState.UNKNOWN} for state in MemberState
}

#: Why a member goes into a state.
_BECAUSE: Final[Mapping[MemberState, str]] = {
    MemberState.STABLE: "has its part",
    MemberState.UNREVOKED_PARTITIONS: "must give up",
    MemberState.UNRELEASED_PARTITIONS: "others still have some",
}


def diagram() -> str:
    """The group's automaton for `docs/automata.md`."""
    lines = ["stateDiagram-v2", f"    [*] --> {GroupState.EMPTY.value}"]
    for state, after in TRANSITIONS.items():
        lines += [f"    {state.value} --> {each.value}" for each in GroupState if each in after]
    return "\n".join(lines)


def member_diagram() -> str:
    """A member's automaton for `docs/automata.md`."""
    lines = ["stateDiagram-v2", f"    [*] --> {MemberState.STABLE.name}"]
    for state, after in MEMBER_TRANSITIONS.items():
        lines += [f"    {state.name} --> {each.name} : {_BECAUSE[each]}" for each in MemberState if each in after]
    return "\n".join(lines)
