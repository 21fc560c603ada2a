"""The automaton of a consumer's membership in its group: states, inputs, and one table (SPEC G3–G15, classic protocol).

Each state waits for one thing. What changes the assignment (GIVING_UP, YIELDING, TAKING, RETURNING) happens inside the
user's poll, or in the call that leaves; everything else goes on between two polls too.

An input that a state does not list is refused: the state stays as it is, and nothing is done. One that may come in a
state but means nothing there stands in the table with the state itself as its target.
"""

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """Where the member stands, and what it waits for."""

    #: Not in the group; the next poll joins.
    OUT = "Out"
    #: Before JoinGroup: commits, then `on_revoked` or `on_lost` in the user's poll.
    GIVING_UP = "GivingUp"
    #: For JoinGroup's answer, or for the pause before the next one.
    JOINING = "Joining"
    #: The leader: for fresh metadata to divide.
    LEADING = "Leading"
    #: For SyncGroup's answer.
    SYNCING = "Syncing"
    #: The assignment has come: what goes to others is committed, and `on_revoked` called in the user's poll.
    YIELDING = "Yielding"
    #: `on_assigned` is called in the user's poll.
    TAKING = "Taking"
    #: A member with an assignment.
    STABLE = "Stable"
    #: The user leaves: everything is committed and given back in the call that leaves.
    RETURNING = "Returning"
    #: For LeaveGroup's answer.
    LEAVING = "Leaving"
    #: Another consumer has this one's `group.instance.id`: joining again would take it back, and so on for ever.
    FENCED = "Fenced"


class Input(Enum):
    """What has happened."""

    #: poll begins a rebalance.
    REBALANCE = "rebalance"
    #: The partitions that had to go are given up.
    GIVEN_UP = "given up"
    #: JoinGroup was answered, and somebody else leads.
    JOINED = "joined"
    #: JoinGroup was answered, and this member divides.
    ELECTED = "elected"
    #: The leader has divided the partitions.
    DIVIDED = "divided"
    #: SyncGroup was answered with an assignment.
    SYNCED = "synced"
    #: JoinGroup, SyncGroup or the leader's metadata has failed, or was answered: join again.
    AGAIN = "again"
    #: The user knows of the new partitions.
    TAKEN = "taken"
    #: JoinGroup or SyncGroup was answered that the group goes on without this member.
    DROPPED = "dropped"
    #: A heartbeat or a commit was answered so.
    EXPELLED = "expelled"
    #: At the end of a callback: the member was expelled meanwhile.
    CUT_OFF = "cut off"
    #: An answer that poll raises, and that the member cannot go on after.
    REFUSED = "refused"
    #: FENCED_INSTANCE_ID.
    FENCED = "fenced"
    #: The user unsubscribes or closes.
    LEAVE = "leave"
    #: It leaves at once, and asks nobody: no poll for too long, an assignor that fails, a client that was not closed.
    DEPART = "depart"
    #: LeaveGroup was answered, or was not in time, or there was nothing to leave.
    LEFT = "left"


_S, _I = State, Input
#: From everywhere.
_ENDS = {_I.LEAVE: _S.RETURNING, _I.DEPART: _S.LEAVING, _I.FENCED: _S.FENCED}
#: A callback that has begun is seen to its end: the partitions that it names are gone for the user.
_IN_CALLBACK = _ENDS | {_I.CUT_OFF: _S.OUT, _I.REFUSED: _S.OUT}
TRANSITIONS: Mapping[State, Mapping[Input, State]] = {
    _S.OUT: _ENDS | {_I.REBALANCE: _S.GIVING_UP, _I.EXPELLED: _S.OUT, _I.GIVEN_UP: _S.OUT, _I.TAKEN: _S.OUT},
    _S.GIVING_UP: _ENDS | {_I.GIVEN_UP: _S.JOINING, _I.EXPELLED: _S.GIVING_UP, _I.REFUSED: _S.OUT},
    _S.JOINING: _ENDS
    | {
        _I.JOINED: _S.SYNCING,
        _I.ELECTED: _S.LEADING,
        _I.AGAIN: _S.JOINING,
        _I.DROPPED: _S.GIVING_UP,
        _I.EXPELLED: _S.JOINING,  # JoinGroup's own answer is newer
        _I.REFUSED: _S.OUT,
    },
    _S.LEADING: _ENDS
    | {
        _I.DIVIDED: _S.SYNCING,
        _I.AGAIN: _S.JOINING,
        _I.EXPELLED: _S.GIVING_UP,
        _I.REFUSED: _S.OUT,
    },
    _S.SYNCING: _ENDS
    | {
        _I.SYNCED: _S.YIELDING,
        _I.AGAIN: _S.JOINING,
        _I.DROPPED: _S.GIVING_UP,
        _I.EXPELLED: _S.GIVING_UP,
        _I.REFUSED: _S.OUT,
    },
    _S.YIELDING: _IN_CALLBACK | {_I.GIVEN_UP: _S.TAKING, _I.EXPELLED: _S.YIELDING},
    _S.TAKING: _IN_CALLBACK | {_I.TAKEN: _S.STABLE, _I.EXPELLED: _S.TAKING},
    _S.STABLE: _ENDS | {_I.REBALANCE: _S.GIVING_UP, _I.EXPELLED: _S.OUT, _I.REFUSED: _S.OUT},
    _S.RETURNING: _ENDS
    | {
        _I.GIVEN_UP: _S.LEAVING,
        _I.EXPELLED: _S.RETURNING,
        _I.FENCED: _S.RETURNING,
        _I.REFUSED: _S.RETURNING,
        _I.TAKEN: _S.RETURNING,
    },
    _S.LEAVING: _ENDS
    | {
        _I.LEFT: _S.OUT,
        _I.EXPELLED: _S.LEAVING,
        _I.FENCED: _S.LEAVING,
        _I.GIVEN_UP: _S.LEAVING,
        _I.TAKEN: _S.LEAVING,
    },
    _S.FENCED: _ENDS | {_I.GIVEN_UP: _S.FENCED, _I.TAKEN: _S.FENCED, _I.EXPELLED: _S.FENCED},
}


def next_state(state: State, what: Input) -> State | None:
    """Where `what` leads from `state`; None when it is refused."""
    return TRANSITIONS[state].get(what)


def diagram() -> str:
    """The table as a Mermaid diagram, without what leads back to the state itself."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.OUT.value}", '    state "every state" as Every']
    lines += [f"    Every --> {target.value} : {what.value}" for what, target in _ENDS.items()]
    for source, inputs in TRANSITIONS.items():
        by_target: dict[State, list[str]] = {}
        for what, target in inputs.items():
            if target is not source and what not in _ENDS:
                by_target.setdefault(target, []).append(what.value)
        lines += [f"    {source.value} --> {target.value} : {', '.join(names)}" for target, names in by_target.items()]
    return "\n".join(lines)
