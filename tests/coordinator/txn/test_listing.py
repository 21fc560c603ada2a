"""DescribeTransactions and ListTransactions (T14)."""

from __future__ import annotations

import pytest

from ottla.base.steps import result_of
from ottla.coordinator.txn.listing import Listing
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_transactions as describe_messages
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from tests.coordinator.txn.requests import end, init, ongoing
from tests.coordinator.txn.runtime import NOW_MS, T0, T1, U0, ShardRuntime


def test_t14_describe_tells_what_is_open_and_since_when() -> None:
    runtime = ShardRuntime()
    assert result_of(runtime.shard.describe("x")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert result_of(runtime.shard.describe("")).error_code == ErrorCode.INVALID_REQUEST
    producer_id = ongoing(runtime, U0, T1, T0)
    assert result_of(runtime.shard.describe("x")) == describe_messages.TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id="x",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=NOW_MS,
        producer_id=producer_id,
        producer_epoch=0,
        topics=(describe_messages.TopicData("t", (0, 1)), describe_messages.TopicData("u", (0,))),
    )


def listed(request: ListTransactionsRequest) -> tuple[list[str], tuple[str, ...], int]:
    """Ids shown, unknown states, error; of two shards: x Ongoing for 10 s, y-1 Empty, y-2 CompleteAbort."""
    first, second = ShardRuntime(), ShardRuntime()
    ongoing(first)
    init(second, InitProducerIdRequest("y-1", 60_000))
    aborted = ongoing(second)
    end(second, aborted, 0, commit=False)
    second.write_markers()
    listing = Listing(request, NOW_MS + 10_000)
    list(listing.steps([first.shard.store, second.shard.store]))
    response = listing.response
    names = [f"{txn.transactional_id} {txn.transaction_state}" for txn in response.transaction_states]
    return names, response.unknown_state_filters, response.error_code


ALL = ["x Ongoing", "y-1 Empty", "x CompleteAbort"]


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (ListTransactionsRequest(), ALL),
        (ListTransactionsRequest(state_filters=("Ongoing", "Empty")), ALL[:2]),
        (ListTransactionsRequest(state_filters=("Dead",)), []),
        (ListTransactionsRequest(producer_id_filters=(1000,)), ALL[:2]),
        (ListTransactionsRequest(producer_id_filters=(7,)), []),
        (ListTransactionsRequest(duration_filter=9_999, state_filters=("Ongoing",)), ALL[:1]),
        (ListTransactionsRequest(duration_filter=10_000, state_filters=("Ongoing",)), []),
        (ListTransactionsRequest(transactional_id_pattern="y-.*"), ALL[1:2]),
        (ListTransactionsRequest(transactional_id_pattern="y-"), []),
        (ListTransactionsRequest(transactional_id_pattern=""), ALL),
    ],
)
def test_t14_list_filters(request_: ListTransactionsRequest, names: list[str]) -> None:
    assert listed(request_) == (names, (), ErrorCode.NONE)


def test_t14_unknown_states_are_named_and_match_nothing() -> None:
    assert listed(ListTransactionsRequest(state_filters=("Nonsense",))) == ([], ("Nonsense",), ErrorCode.NONE)


def test_t14_pattern_that_is_none_is_refused() -> None:
    assert listed(ListTransactionsRequest(transactional_id_pattern="(")) == (
        [],
        (),
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    )
