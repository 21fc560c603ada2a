"""Calls that end a transaction, and whose caller was cancelled just as they ended: the same call tells how it ended.

Nobody may be left with a transaction that was committed and an error that there was none.
"""

import pytest

from ottla.client.core import intents
from ottla.client.core.producer.handle import TransactionHandle
from ottla.client.core.producer.transaction_state import TxnInput
from ottla.client.errors import AbortableTransactionError, DisconnectedError, FatalProducerError, IllegalStateError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.end_txn import EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from tests.client.core.producer.by_hand import ByHand

_DONE = {TxnInput.COMMIT: "committed", TxnInput.ABORT: "aborted"}
_OPPOSITE = {TxnInput.COMMIT: TxnInput.ABORT, TxnInput.ABORT: TxnInput.COMMIT}


def end(producer: ByHand, call: TxnInput) -> Exception | None:
    """Make a call that is answered without a request."""
    return producer.result(producer.call(producer.core.end_transaction, call))


def ended_unheard(call: TxnInput) -> ByHand:
    """A producer whose transaction has ended, while the caller was cancelled."""
    producer = begun()
    ending = producer.call(producer.core.end_transaction, call)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, 0, 7, 1))
    assert producer.result(ending) is None
    producer.feed(producer.core.abandoned, ending)
    return producer


def begun(transaction_version: int = 2) -> ByHand:
    """A producer with an open transaction, which has a record."""
    producer = ByHand("a", transactional_id="x")
    initializing = producer.call(producer.core.init_transactions)
    producer.tell_versions(transaction_version)
    producer.identify(7, 0)
    assert producer.result(initializing) is None
    assert producer.result(producer.call(producer.core.begin_transaction)) is None
    producer.send("a")
    if transaction_version == 1:
        results = (AddPartitionsToTxnPartitionResult(0, ErrorCode.NONE),)
        topics = (AddPartitionsToTxnTopicResult("a", results),)
        added = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
        producer.answer(ApiKey.ADD_PARTITIONS_TO_TXN, added)
    producer.connect()
    producer.acknowledge()
    return producer


@pytest.mark.parametrize("call", [TxnInput.COMMIT, TxnInput.ABORT])
def test_the_same_call_tells_once_that_it_has_succeeded(call: TxnInput) -> None:
    producer = ended_unheard(call)
    assert end(producer, call) is None
    assert not producer.waiting(ApiKey.END_TXN)
    error = end(producer, call)
    assert isinstance(error, IllegalStateError)
    assert "there is no open transaction" in str(error)


@pytest.mark.parametrize("call", [TxnInput.COMMIT, TxnInput.ABORT])
def test_the_opposite_call_is_told_what_has_become_of_the_transaction(call: TxnInput) -> None:
    producer = ended_unheard(call)
    error = end(producer, _OPPOSITE[call])
    assert isinstance(error, IllegalStateError)
    assert f"{_OPPOSITE[call].value} is not allowed now: the transaction was {_DONE[call]}" in str(error)
    assert end(producer, call) is None


@pytest.mark.parametrize("call", [TxnInput.COMMIT, TxnInput.ABORT])
def test_the_next_transaction_knows_nothing_of_it(call: TxnInput) -> None:
    producer = ended_unheard(call)
    assert producer.result(producer.call(producer.core.begin_transaction)) is None
    assert end(producer, TxnInput.COMMIT) is None
    for again in (TxnInput.COMMIT, TxnInput.ABORT):
        error = end(producer, again)
        assert isinstance(error, IllegalStateError)
        assert "there is no open transaction" in str(error)


def test_who_has_heard_of_the_end_is_told_that_there_is_no_transaction() -> None:
    producer = begun()
    committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, 0, 7, 1))
    assert producer.result(committing) is None
    assert isinstance(end(producer, TxnInput.COMMIT), IllegalStateError)


def test_a_commit_that_failed_unheard_fails_again() -> None:
    producer = begun()
    producer.send("a")
    committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    producer.acknowledge(ErrorCode.INVALID_RECORD)
    assert isinstance(producer.result(committing), AbortableTransactionError)
    producer.feed(producer.core.abandoned, committing)
    assert isinstance(end(producer, TxnInput.COMMIT), AbortableTransactionError)


def test_a_commit_that_succeeded_unheard_is_told_also_when_the_next_epoch_was_refused() -> None:
    """First protocol: only there it is asked for behind a commit, after an answer that was lost."""
    producer = begun(1)
    committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    producer.lose(ApiKey.END_TXN, DisconnectedError("gone"))
    producer.pass_time(1.0)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, 0))
    producer.answer(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(0, ErrorCode.PRODUCER_FENCED))
    assert producer.result(committing) is None
    producer.feed(producer.core.abandoned, committing)
    assert end(producer, TxnInput.COMMIT) is None
    assert isinstance(end(producer, TxnInput.COMMIT), FatalProducerError)


def test_a_handle_that_nobody_has_got_is_given_again() -> None:
    producer = begun()
    detaching = producer.call(producer.core.end_transaction, TxnInput.DETACH)
    handle = producer.take(intents.Finish).value
    assert isinstance(handle, TransactionHandle)
    producer.feed(producer.core.abandoned, detaching)
    producer.call(producer.core.end_transaction, TxnInput.DETACH)
    assert producer.take(intents.Finish).value == handle
    error = end(producer, TxnInput.COMMIT)
    assert isinstance(error, IllegalStateError)
    assert "the transaction was detached" in str(error)
