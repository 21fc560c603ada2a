"""SPEC T1: every (state, input) pair of the transactional producer."""

import itertools

import pytest

from ottla.client.core.producer.transaction_state import (
    ADVICE,
    TRANSITIONS,
    TransactionState,
    TxnInput,
    TxnState,
)
from ottla.client.errors import AbortableTransactionError, ClientError, FatalProducerError, IllegalStateError

PAIRS = list(itertools.product(TxnState, TxnInput))


def at(state: TxnState) -> TransactionState:
    automaton = TransactionState()
    automaton.state = state
    if state in (TxnState.ABORTABLE_ERROR, TxnState.FATAL_ERROR):
        automaton.cause = ClientError("what happened")
    return automaton


@pytest.mark.parametrize(("state", "happened"), PAIRS, ids=lambda part: part.name)
def test_t1_every_state_and_input(state: TxnState, happened: TxnInput) -> None:
    automaton = at(state)
    target = TRANSITIONS[state].get(happened)
    if target is not None:
        automaton.handle(happened)
        assert automaton.state is target
        return
    with pytest.raises(ClientError) as refused:
        automaton.handle(happened)
    assert automaton.state is state
    match state:
        case TxnState.FATAL_ERROR:
            assert isinstance(refused.value, FatalProducerError)
        case TxnState.ABORTABLE_ERROR:
            assert isinstance(refused.value, AbortableTransactionError)
        case _:
            assert isinstance(refused.value, IllegalStateError)
            assert happened.value in str(refused.value)


def test_t1_every_state_has_advice() -> None:
    assert set(ADVICE) == set(TRANSITIONS) == set(TxnState)


@pytest.mark.parametrize(
    ("state", "call", "advice"),
    [
        (TxnState.UNINITIALIZED, TxnInput.BEGIN, "call init_transactions() first"),
        (TxnState.UNINITIALIZED, TxnInput.SEND, "call init_transactions() first"),
        (TxnState.READY, TxnInput.INIT, "initialized already"),
        (TxnState.READY, TxnInput.SEND, "call begin_transaction() first"),
        (TxnState.READY, TxnInput.COMMIT, "call begin_transaction() first"),
        (TxnState.READY, TxnInput.ABORT, "call begin_transaction() first"),
        (TxnState.IN_TRANSACTION, TxnInput.BEGIN, "commit_transaction() or abort_transaction() first"),
        (TxnState.COMMITTING, TxnInput.ABORT, "commit_transaction() again"),
        (TxnState.ABORTING, TxnInput.COMMIT, "abort_transaction() again"),
        (TxnState.DETACHED, TxnInput.COMMIT, "was detached"),
    ],
)
def test_t1_a_misuse_is_told_what_to_do(state: TxnState, call: TxnInput, advice: str) -> None:
    with pytest.raises(IllegalStateError) as refused:
        at(state).handle(call)
    assert advice in str(refused.value)


def test_t1_an_error_keeps_its_first_cause_until_the_abort() -> None:
    automaton = at(TxnState.IN_TRANSACTION)
    first = ClientError("first")
    automaton.handle(TxnInput.ABORTABLE, first)
    automaton.handle(TxnInput.ABORTABLE, ClientError("second"))
    with pytest.raises(AbortableTransactionError) as refused:
        automaton.handle(TxnInput.COMMIT)
    assert refused.value.__cause__ is first
    automaton.handle(TxnInput.ABORT)
    automaton.handle(TxnInput.ENDED)
    assert (automaton.state, automaton.cause) == (TxnState.READY, None)
