"""Batches that Apache Kafka 4.3 refuses because of their records, and what it answers (KIP-467).

Held against our broker here and against Apache Kafka itself in interop. The texts count too: some clients show them,
and librdkafka fails the records that are named and says of the others that they failed because of those.
"""

import re
from typing import Final, NamedTuple

from ottla.wire.apis import ApiKey
from ottla.wire.batch import TimestampType, pack_header, parse_header, seal
from ottla.wire.compression import Compression
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch
from tests.broker.records_io import until_led
from tests.broker.wire_client import WireClient

TOPIC: Final = "refused"
#: In 2001; after the year 5000; without a time, which every topic takes.
_OLD_MS, _LATE_MS, _NO_TIME = 1_000_000_000_000, 100_000_000_000_000, -1


class Answer(NamedTuple):
    """What counts of the answer. Times of the broker are cut out of the texts."""

    error_code: int
    record_errors: list[tuple[int, str | None]]
    #: "" where the text is each broker's own.
    error_message: str | None
    log_start_offset: int


def _batch(
    *records: tuple[bytes | None, int],
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """A batch of records with these keys and timestamps."""
    return encode_batch(
        [Record(at, timestamp_ms, key, b"v", ()) for at, (key, timestamp_ms) in enumerate(records)],
        compression=compression,
        timestamp_type=timestamp_type,
    )


def _with(batch: bytes, **fields: int) -> bytes:
    """The batch with other fields in its header."""
    packed = bytearray(batch)
    header = parse_header(packed)._replace(**fields)
    packed[: len(pack_header(header))] = pack_header(header)
    seal(packed)
    return bytes(packed)


_KEYED, _KEYLESS = (b"k", _NO_TIME), (None, _NO_TIME)
_OLD, _LATE, _KEYLESS_LATE = (b"k", _OLD_MS), (b"k", _LATE_MS), (None, _LATE_MS)
_NO_KEY = f"Compacted topic cannot accept message without key in topic partition {TOPIC}-0"
_BY_TIME = "One or more records have been rejected due to invalid timestamp"


def _out_of_range(timestamp_ms: int, offset: int) -> str:
    return (
        f"Timestamp {timestamp_ms} of message with offset {offset} is out of range. "
        "The timestamp should be within [\N{HORIZONTAL ELLIPSIS}]"
    )


def _stamped(offset: int) -> str:
    return (
        f"Invalid timestamp type in message DefaultRecord(offset={offset}, timestamp=-1, key=1 bytes, value=1 bytes). "
        "Producer should not set timestamp type to LogAppendTime."
    )


def _by_key(*indexes: int) -> str:
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{_NO_KEY}')" for index in indexes[:3])
    return (
        f"One or more records have been rejected due to {len(indexes)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )


#: Batches and answers, by what is wrong.
REFUSALS: Final[dict[str, tuple[bytes, Answer]]] = {
    "no key in two of three": (
        _batch(_KEYLESS, _KEYED, _KEYLESS),
        Answer(87, [(0, _NO_KEY), (2, _NO_KEY)], _by_key(0, 2), 0),
    ),
    "no key in two of three, compressed": (
        _batch(_KEYED, _KEYLESS, _KEYLESS, compression=Compression.GZIP),
        Answer(87, [(1, _NO_KEY), (2, _NO_KEY)], _by_key(1, 2), 0),
    ),
    "no key in five": (
        _batch(*[_KEYLESS] * 5),
        Answer(87, [(at, _NO_KEY) for at in range(5)], _by_key(*range(5)), 0),
    ),
    "from the future": (
        _batch(_KEYED, _LATE, _KEYED, _LATE),
        Answer(32, [(1, _out_of_range(_LATE_MS, 1)), (3, _out_of_range(_LATE_MS, 3))], _BY_TIME, 0),
    ),
    "from the past": (
        _batch(_OLD, _KEYED),
        Answer(32, [(0, _out_of_range(_OLD_MS, 0))], _BY_TIME, 0),
    ),
    "from the past, and not the first": (
        _batch(_KEYED, _OLD),
        Answer(32, [(1, _out_of_range(_OLD_MS, 1))], _BY_TIME, 0),
    ),
    "no key, and from the future": (
        _batch(_KEYLESS, _LATE, _KEYLESS_LATE),
        Answer(32, [(0, _NO_KEY), (1, _out_of_range(_LATE_MS, 1)), (2, _NO_KEY)], _BY_TIME, 0),
    ),
    "stamped by the producer": (
        _batch(_KEYED, _KEYED, timestamp_type=TimestampType.LOG_APPEND_TIME),
        Answer(32, [(0, _stamped(0)), (1, _stamped(1))], _BY_TIME, 0),
    ),
    "a count that is not that of the offsets": (
        _with(_batch(_KEYED, _KEYED), last_offset_delta=2),
        Answer(87, [], "", 0),
    ),
    "a producer without a sequence": (
        _with(_batch(_KEYED), producer_id=5, producer_epoch=0),
        Answer(87, [], "", 0),
    ),
    "a control batch": (
        _with(_batch(_KEYED), attributes=0x20),
        Answer(87, [], "", 0),
    ),
    "a base offset": (
        _with(_batch(_KEYED), base_offset=3),
        Answer(87, [], "", 0),
    ),
}


async def prepare(client: WireClient) -> None:
    """A compacted topic that takes no record older than a day."""
    configs = (
        CreatableTopicConfig("cleanup.policy", "compact"),
        CreatableTopicConfig("message.timestamp.before.max.ms", "86400000"),
    )
    topic = CreatableTopic(TOPIC, 1, 1, configs=configs)
    await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((topic,), 10_000))
    await until_led(client, TOPIC)


async def ask(client: WireClient, name: str) -> Answer:
    """Produce the batch of this name."""
    records, expected = REFUSALS[name]
    asked = ProduceRequest(
        None, -1, 10_000, (TopicProduceData(name=TOPIC, partition_data=(PartitionProduceData(0, records),)),)
    )
    (answer,) = (await client.ask(ApiKey.PRODUCE, asked, 12)).responses[0].partition_responses
    errors = [(each.batch_index, _untimed(each.batch_index_error_message)) for each in answer.record_errors]
    text = "" if expected.error_message == "" else _untimed(answer.error_message)
    return Answer(answer.error_code, errors, text, answer.log_start_offset)


def _untimed(text: str | None) -> str | None:
    return text and re.sub(r"within \[\d+, \d+\]", "within [\N{HORIZONTAL ELLIPSIS}]", text)
