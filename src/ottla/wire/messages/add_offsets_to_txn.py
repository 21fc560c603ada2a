"""add_offsets_to_txn messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class AddOffsetsToTxnRequest(NamedTuple):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0


declare(
    AddOffsetsToTxnRequest,
    (
        Field("transactional_id", "string", 0, LATEST),
        Field("producer_id", "int64", 0, LATEST),
        Field("producer_epoch", "int16", 0, LATEST),
        Field("group_id", "string", 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    AddOffsetsToTxnResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=3,
)
