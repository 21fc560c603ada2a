"""The final state: what is in the logs, and what groups have committed. confluent-kafka reads it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.base.types import TopicPartition
from ottla.testing.history import History, LogRecord, check_history
from tests.recording.notes import uid

_WAIT_S, _SETTLE_S = 60.0, 10.0
_MOST_SAID = 20


def note_logs(history: History, bootstrap: str, topics: Mapping[str, int]) -> dict[TopicPartition, list[LogRecord]]:
    """Read back all partitions of the topics (name → number of partitions); note and return what is there."""
    partitions = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    starts = _offsets(bootstrap, partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
    ends, stable = _ends(bootstrap, partitions)
    everything = read_all(bootstrap, starts, "read_uncommitted")
    visible = read_all(bootstrap, starts, "read_committed")
    found = {}
    for tp in partitions:
        seen = set(visible[tp])
        found[tp] = [LogRecord(*record, visible=record in seen) for record in everything[tp]]
        history.log(tp, found[tp], start_offset=starts[tp], high_watermark=ends[tp], last_stable_offset=stable[tp])
    return found


def read_all(
    bootstrap: str, starts: Mapping[TopicPartition, int], isolation: str
) -> dict[TopicPartition, list[tuple[int, str]]]:
    """The records of each partition, from its first offset to its end, as (offset, uid)."""
    found: dict[TopicPartition, list[tuple[int, str]]] = {tp: [] for tp in starts}
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads what is there",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(*tp, offset) for tp, offset in starts.items()])
    ended: set[TopicPartition] = set()
    while ended != found.keys():
        message = consumer.poll(_WAIT_S)
        assert message is not None, f"the broker sent nothing; not at the end: {found.keys() - ended}"
        tp = TopicPartition(message.topic(), message.partition())
        error = message.error()
        if error is None:
            found[tp].append((message.offset(), uid(tp.topic, message.value())))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(tp)
    consumer.close()
    return found


def note_positions(history: History, bootstrap: str, group: str) -> None:
    """Note what a group has committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    committed = answer.result(_WAIT_S).topic_partitions
    history.positions(group, {TopicPartition(tp.topic, tp.partition): tp.offset for tp in committed if tp.offset >= 0})


def _ends(
    bootstrap: str, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """High watermarks and last stable offsets. A commit may be answered before its markers are written."""
    until_s = time.monotonic() + _SETTLE_S
    while True:
        stable = _offsets(bootstrap, partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        ends = _offsets(bootstrap, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        if stable == ends or time.monotonic() > until_s:
            return ends, stable


def _offsets(
    bootstrap: str, partitions: Iterable[TopicPartition], spec: Any, isolation: Any
) -> dict[TopicPartition, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = {confluent_kafka.TopicPartition(*tp): spec for tp in partitions}
    found = admin.list_offsets(asked, isolation_level=isolation) if asked else {}
    return {TopicPartition(tp.topic, tp.partition): answer.result(_WAIT_S).offset for tp, answer in found.items()}


def assert_good(history: History, *, ignore: Collection[str] = ()) -> None:
    """Nothing happened that must not. Otherwise the history is kept in a file, whose name stands in the failure."""
    found = check_history(history, ignore=ignore)
    if not found:
        return
    with tempfile.NamedTemporaryFile("w", prefix="ottla-history-", suffix=".jsonl", delete=False) as file:
        history.write(file.name)
    said = "\n".join(f"  {anomaly}" for anomaly in found[:_MOST_SAID])
    raise AssertionError(f"{len(found)} anomalies; the history is in {file.name}\n{said}")
