"""end_txn messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class EndTxnRequest(NamedTuple):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False


class EndTxnResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


declare(
    EndTxnRequest,
    (
        Field("transactional_id", "string", 0, LATEST),
        Field("producer_id", "int64", 0, LATEST),
        Field("producer_epoch", "int16", 0, LATEST),
        Field("committed", "bool", 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    EndTxnResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("producer_id", "int64", 5, LATEST),
        Field("producer_epoch", "int16", 5, LATEST),
    ),
    flexible_from=3,
)
