"""The automaton of a member of a group that speaks the consumer protocol (KIP-848): states, inputs, and one table.

There is one request, the heartbeat. Its answer may bring a target: the partitions that this member shall have. The
member reconciles it: it gives up what is not in the target, takes over what is new, and acknowledges that by the next
heartbeat. Then the coordinator gives others what was given up, and this member what others gave up. Heartbeats go on in
all states from JOINING to RETURNING.

Apache Kafka's client has the same automaton with other borders: its RECONCILING is RESOLVING, YIELDING and TAKING
here, because each of our states waits for one thing. Its FENCED and STALE, in which partitions are lost, are OUT and
GIVING_UP. Its FATAL is OUT after a final error, because here the next poll may try again, and FENCED, where it must
not.

The steps that change the assignment (GIVING_UP, YIELDING, TAKING, RETURNING) happen inside the user's poll, or in the
user's call that leaves. A state refuses an input that it does not list: it does not change, and nothing is done.
"""

from collections.abc import Mapping
from enum import Enum

from ottla.client.core.consumer.group.table import draw


class State(Enum):
    """Where the member is, and what it waits for."""

    #: Not in the group. The next poll joins.
    OUT = "Out"
    #: Before it joins, in the user's poll: what it had as a member before is lost.
    GIVING_UP = "GivingUp"
    #: Waits for the answer to the heartbeat with epoch 0, or for the end of the pause before the next one.
    JOINING = "Joining"
    #: The target has topics whose names are not known yet. Waits for metadata.
    RESOLVING = "Resolving"
    #: What the target does not have is committed, then the user's poll calls `on_revoked`.
    YIELDING = "Yielding"
    #: The user's poll calls `on_assigned`.
    TAKING = "Taking"
    #: Waits for the answer to the heartbeat that says what the member has now.
    ACKNOWLEDGING = "Acknowledging"
    #: A member that has what it shall have.
    STABLE = "Stable"
    #: The user leaves: positions are committed and all partitions given up, in the user's call.
    RETURNING = "Returning"
    #: Waits for the answer to the heartbeat that leaves.
    LEAVING = "Leaving"
    #: Another consumer uses this one's `group.instance.id`. If this one joined again, the two would fence each other
    #: for ever.
    FENCED = "Fenced"


class Input(Enum):
    """What has happened."""

    #: poll has begun to join.
    JOIN = "join"
    #: The partitions that had to go have been given up.
    GIVEN_UP = "given up"
    #: Joining has failed for now, or the coordinator has refused the epoch: join again after a pause.
    AGAIN = "again"
    #: The target, or the part of it whose topics are known, is not what the member has.
    TARGET = "target"
    #: The part of the target that is known is what the member has, and the rest is not known.
    UNKNOWN_TOPICS = "unknown topics"
    #: The target is what the member has.
    RECONCILED = "reconciled"
    #: The user has been told of the new partitions.
    TAKEN = "taken"
    #: The coordinator has heard what the member has.
    ACKNOWLEDGED = "acknowledged"
    #: A heartbeat or a commit was answered that the group goes on without this member.
    EXPELLED = "expelled"
    #: Partitions were given up or taken over, and the member was expelled meanwhile.
    CUT_OFF = "cut off"
    #: A final error: the member cannot go on, and poll raises the error.
    REFUSED = "refused"
    #: An answer was FENCED_INSTANCE_ID.
    FENCED = "fenced"
    #: The user calls unsubscribe() or close().
    LEAVE = "leave"
    #: The member leaves at once, without a commit or a callback: the user did not poll for too long, or nobody closed
    #: the client.
    DEPART = "depart"
    #: The heartbeat that leaves was answered, or not in time. Or the coordinator need not be told.
    LEFT = "left"


_S, _I = State, Input
#: Possible in every state.
_ENDS = {_I.LEAVE: _S.RETURNING, _I.DEPART: _S.LEAVING, _I.FENCED: _S.FENCED}
#: What a look at the target can find, and what ends a membership outside the user's poll.
_LOOKS = {_I.TARGET: _S.YIELDING, _I.UNKNOWN_TOPICS: _S.RESOLVING, _I.RECONCILED: _S.STABLE}
_IS_OVER = {_I.EXPELLED: _S.OUT, _I.REFUSED: _S.OUT}
#: A step that may have called the user is finished first, because the user knows of its partitions. So an expulsion
#: changes the state only at its end (CUT_OFF).
_IN_CALLBACK = _ENDS | {_I.CUT_OFF: _S.OUT, _I.REFUSED: _S.OUT}
TRANSITIONS: Mapping[State, Mapping[Input, State]] = {
    _S.OUT: _ENDS | {_I.JOIN: _S.GIVING_UP, _I.EXPELLED: _S.OUT, _I.GIVEN_UP: _S.OUT, _I.TAKEN: _S.OUT},
    _S.GIVING_UP: _ENDS | {_I.GIVEN_UP: _S.JOINING, _I.EXPELLED: _S.GIVING_UP, _I.REFUSED: _S.OUT},
    _S.JOINING: _ENDS | _LOOKS | {_I.AGAIN: _S.JOINING, _I.EXPELLED: _S.JOINING, _I.REFUSED: _S.OUT},
    _S.RESOLVING: _ENDS | _LOOKS | _IS_OVER,
    _S.YIELDING: _IN_CALLBACK | {_I.GIVEN_UP: _S.TAKING, _I.EXPELLED: _S.YIELDING},
    _S.TAKING: _IN_CALLBACK | {_I.TAKEN: _S.ACKNOWLEDGING, _I.EXPELLED: _S.TAKING},
    _S.ACKNOWLEDGING: _ENDS | _IS_OVER | {_I.ACKNOWLEDGED: _S.STABLE},
    _S.STABLE: _ENDS | _LOOKS | _IS_OVER,
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
