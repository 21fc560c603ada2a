"""list_transactions messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class ListTransactionsRequest(NamedTuple):
    state_filters: tuple[str, ...] = ()
    producer_id_filters: tuple[int, ...] = ()
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


class TransactionState(NamedTuple):
    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""


class ListTransactionsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: tuple[str, ...] = ()
    transaction_states: tuple[TransactionState, ...] = ()


declare(
    ListTransactionsRequest,
    (
        Field("state_filters", ["string"], 0, LATEST),
        Field("producer_id_filters", ["int64"], 0, LATEST),
        Field("duration_filter", "int64", 1, LATEST, ignorable=False),
        Field("transactional_id_pattern", "string", 2, LATEST, null_first=2, null_last=LATEST, ignorable=False),
    ),
    flexible_from=0,
)
declare(
    TransactionState,
    (
        Field("transactional_id", "string", 0, LATEST),
        Field("producer_id", "int64", 0, LATEST),
        Field("transaction_state", "string", 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    ListTransactionsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("unknown_state_filters", ["string"], 0, LATEST),
        Field("transaction_states", [TransactionState], 0, LATEST),
    ),
    flexible_from=0,
)
