"""init_producer_id messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class InitProducerIdRequest(NamedTuple):
    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    enable_2pc: bool = False
    keep_prepared_txn: bool = False


class InitProducerIdResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1


declare(
    InitProducerIdRequest,
    (
        Field("transactional_id", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("transaction_timeout_ms", "int32", 0, LATEST),
        Field("producer_id", "int64", 3, LATEST, ignorable=False),
        Field("producer_epoch", "int16", 3, LATEST, ignorable=False),
        Field("enable_2pc", "bool", 6, LATEST),
        Field("keep_prepared_txn", "bool", 6, LATEST, ignorable=False),
    ),
    flexible_from=2,
)
declare(
    InitProducerIdResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("producer_id", "int64", 0, LATEST),
        Field("producer_epoch", "int16", 0, LATEST),
        Field("ongoing_txn_producer_id", "int64", 6, LATEST),
        Field("ongoing_txn_producer_epoch", "int16", 6, LATEST),
    ),
    flexible_from=2,
)
