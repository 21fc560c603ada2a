"""write_txn_markers messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class WritableTxnMarkerTopic(NamedTuple):
    name: str = ""
    partition_indexes: tuple[int, ...] = ()


class WritableTxnMarker(NamedTuple):
    producer_id: int = 0
    producer_epoch: int = 0
    transaction_result: bool = False
    topics: tuple[WritableTxnMarkerTopic, ...] = ()
    coordinator_epoch: int = 0
    transaction_version: int = 0


class WriteTxnMarkersRequest(NamedTuple):
    markers: tuple[WritableTxnMarker, ...] = ()


class WritableTxnMarkerPartitionResult(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class WritableTxnMarkerTopicResult(NamedTuple):
    name: str = ""
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = ()


class WritableTxnMarkerResult(NamedTuple):
    producer_id: int = 0
    topics: tuple[WritableTxnMarkerTopicResult, ...] = ()


class WriteTxnMarkersResponse(NamedTuple):
    markers: tuple[WritableTxnMarkerResult, ...] = ()


declare(
    WritableTxnMarkerTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partition_indexes", ["int32"], 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    WritableTxnMarker,
    (
        Field("producer_id", "int64", 0, LATEST),
        Field("producer_epoch", "int16", 0, LATEST),
        Field("transaction_result", "bool", 0, LATEST),
        Field("topics", [WritableTxnMarkerTopic], 0, LATEST),
        Field("coordinator_epoch", "int32", 0, LATEST),
        Field("transaction_version", "int8", 2, LATEST),
    ),
    flexible_from=1,
)
declare(
    WriteTxnMarkersRequest,
    (Field("markers", [WritableTxnMarker], 0, LATEST),),
    flexible_from=1,
)
declare(
    WritableTxnMarkerPartitionResult,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    WritableTxnMarkerTopicResult,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [WritableTxnMarkerPartitionResult], 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    WritableTxnMarkerResult,
    (
        Field("producer_id", "int64", 0, LATEST),
        Field("topics", [WritableTxnMarkerTopicResult], 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    WriteTxnMarkersResponse,
    (Field("markers", [WritableTxnMarkerResult], 0, LATEST),),
    flexible_from=1,
)
