"""SPEC G20: the automaton of a member of the consumer protocol (KIP-848) is one table."""

import itertools

import pytest

from ottla.client.core.consumer.group.consumer.membership import ConsumerMembership
from ottla.client.core.consumer.group.consumer.states import TRANSITIONS, Input, State, diagram, next_state
from tests.client.core.consumer.rig import Rig


def membership() -> ConsumerMembership:
    membership = Rig({"group.id": "g", "group.protocol": "consumer"}).core.membership
    assert isinstance(membership, ConsumerMembership)
    return membership


@pytest.mark.parametrize(("state", "what"), list(itertools.product(State, Input)), ids=lambda part: part.name)
def test_every_input_in_every_state_goes_where_the_table_says_or_is_refused(state: State, what: Input) -> None:
    member = membership()
    member._state = state
    taken = member._move(what)
    target = TRANSITIONS[state].get(what)
    assert taken is (target is not None)
    assert member.state is (target or state)
    assert next_state(state, what) is target


@pytest.mark.parametrize("state", State)
def test_the_user_can_leave_from_everywhere(state: State) -> None:
    assert next_state(state, Input.LEAVE) is State.RETURNING
    assert next_state(state, Input.DEPART) is State.LEAVING


@pytest.mark.parametrize("state", [State.RETURNING, State.LEAVING])
def test_g20_nothing_that_the_coordinator_says_keeps_a_member_that_leaves(state: State) -> None:
    for what in (Input.EXPELLED, Input.FENCED):
        assert next_state(state, what) is state


def test_every_state_can_be_left_for_stable_and_for_out() -> None:
    for goal in (State.STABLE, State.OUT):
        reached = {goal}
        while more := {s for s, inputs in TRANSITIONS.items() if reached & set(inputs.values())} - reached:
            reached |= more
        assert reached == set(State)


def test_the_diagram_has_every_state() -> None:
    assert all(state.value in diagram() for state in State)
