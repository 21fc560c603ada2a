"""The automaton of a consumer's membership in its group: states, inputs, and one table (SPEC G3–G15, classic protocol).

Each state waits for one thing. The steps that change the assignment (GIVING_UP, YIELDING, TAKING, RETURNING) happen
inside the user's poll, or in the user's call that leaves. All other steps also happen between two polls.

A state refuses an input that it does not list: it does not change, and nothing is done. An input that can come in a
state but has no effect there is in the table, with the state itself as its target.
"""

from collections.abc import Mapping
from enum import Enum

from ottla.client.core.consumer.group.table import draw


class State(Enum):
    """Where the member is, and what it waits for."""

    #: Not in the group. The next poll joins.
    OUT = "Out"
    #: Before JoinGroup: positions are committed, then the user's poll calls `on_revoked` or `on_lost`.
    GIVING_UP = "GivingUp"
    #: Waits for JoinGroup's answer, or for the end of the pause before the next JoinGroup.
    JOINING = "Joining"
    #: The leader waits for fresh metadata, then for its assignor, which divides the partitions.
    LEADING = "Leading"
    #: Waits for SyncGroup's answer.
    SYNCING = "Syncing"
    #: The assignment has come. What goes to other members is committed, then the user's poll calls `on_revoked`.
    YIELDING = "Yielding"
    #: The user's poll calls `on_assigned`.
    TAKING = "Taking"
    #: A member with an assignment.
    STABLE = "Stable"
    #: The user leaves: positions are committed and all partitions given up, in the user's call.
    RETURNING = "Returning"
    #: Waits for LeaveGroup's answer.
    LEAVING = "Leaving"
    #: Another consumer uses this one's `group.instance.id`. If this one joined again, the two would fence each other
    #: for ever.
    FENCED = "Fenced"


class Input(Enum):
    """What has happened."""

    #: poll has begun a rebalance.
    REBALANCE = "rebalance"
    #: The partitions that had to go have been given up.
    GIVEN_UP = "given up"
    #: JoinGroup was answered, and this member does not divide the partitions.
    JOINED = "joined"
    #: JoinGroup was answered, and this member, the leader, divides the partitions.
    ELECTED = "elected"
    #: The leader has divided the partitions.
    DIVIDED = "divided"
    #: SyncGroup was answered with an assignment.
    SYNCED = "synced"
    #: JoinGroup has to be sent again: it, SyncGroup or the leader's metadata has failed, or an answer says so.
    AGAIN = "again"
    #: The user has been told of the new partitions.
    TAKEN = "taken"
    #: The answer to JoinGroup or SyncGroup says that the group goes on without this member.
    DROPPED = "dropped"
    #: The answer to a heartbeat or a commit says the same.
    EXPELLED = "expelled"
    #: Partitions were given up or taken over, and the member was expelled meanwhile.
    CUT_OFF = "cut off"
    #: A final error: the member cannot go on, and poll raises the error.
    REFUSED = "refused"
    #: An answer was FENCED_INSTANCE_ID.
    FENCED = "fenced"
    #: The user calls unsubscribe() or close().
    LEAVE = "leave"
    #: The member leaves at once, without a commit or a callback: the user did not poll for too long, an assignor has
    #: failed, or nobody closed the client.
    DEPART = "depart"
    #: LeaveGroup was answered, or not in time. Or the coordinator need not be told.
    LEFT = "left"


_S, _I = State, Input
#: Possible in every state.
_ENDS = {_I.LEAVE: _S.RETURNING, _I.DEPART: _S.LEAVING, _I.FENCED: _S.FENCED}
#: A step that may have called the user is finished first, because the user knows of its partitions. So an expulsion
#: changes the state only at its end (CUT_OFF).
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
        _I.EXPELLED: _S.JOINING,  # the answer to JoinGroup will be newer
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
    """The state that `what` leads to from `state`; None if `state` refuses it."""
    return TRANSITIONS[state].get(what)


def diagram() -> str:
    """The table as a Mermaid diagram."""
    return draw(TRANSITIONS, _ENDS, State.OUT)
