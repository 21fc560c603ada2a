"""txn_offset_commit messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class TxnOffsetCommitRequestPartition(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""


class TxnOffsetCommitRequestTopic(NamedTuple):
    name: str = ""
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = ()


class TxnOffsetCommitRequest(NamedTuple):
    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = ()


class TxnOffsetCommitResponsePartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class TxnOffsetCommitResponseTopic(NamedTuple):
    name: str = ""
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = ()


class TxnOffsetCommitResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()


declare(
    TxnOffsetCommitRequestPartition,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("committed_offset", "int64", 0, LATEST),
        Field("committed_leader_epoch", "int32", 2, LATEST),
        Field("committed_metadata", "string", 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=3,
)
declare(
    TxnOffsetCommitRequestTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [TxnOffsetCommitRequestPartition], 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    TxnOffsetCommitRequest,
    (
        Field("transactional_id", "string", 0, LATEST),
        Field("group_id", "string", 0, LATEST),
        Field("producer_id", "int64", 0, LATEST),
        Field("producer_epoch", "int16", 0, LATEST),
        Field("generation_id", "int32", 3, LATEST),
        Field("member_id", "string", 3, LATEST),
        Field("group_instance_id", "string", 3, LATEST, null_first=3, null_last=LATEST, ignorable=False),
        Field("topics", [TxnOffsetCommitRequestTopic], 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    TxnOffsetCommitResponsePartition,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    TxnOffsetCommitResponseTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [TxnOffsetCommitResponsePartition], 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    TxnOffsetCommitResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("topics", [TxnOffsetCommitResponseTopic], 0, LATEST),
    ),
    flexible_from=3,
)
