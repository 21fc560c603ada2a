"""The foreign reader of the output: confluent-kafka, so that no code of ours judges our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from ottla.cli.common import CommandError
from ottla.cli.demo.expected import Found

_BATCH = 10_000
_WAIT_S = 0.2
_QUIET_S = 30.0


class Output(NamedTuple):
    """How much of the output topic there is at a level of isolation: data records, and each partition's end."""

    records: int
    ends: dict[int, int]


def require_confluent_kafka() -> None:
    """CommandError with what to install, unless the foreign consumer is there."""
    if find_spec("confluent_kafka") is None:
        raise CommandError(
            "the check reads with confluent-kafka, which is missing; `pip install 'ottla[demo]'` adds it"
        )


def parse(value: bytes) -> Found:
    """One record of the output, as examples/wordcount.py writes it."""
    fields = json.loads(value)
    return Found(fields["word"], fields["count"], fields["partition"], fields["offset"])


def read_output(
    bootstrap: str, topic: str, *, committed_only: bool, take: Callable[[bytes], None], progress: Callable[[int], None]
) -> Output:
    """Read the whole topic; `take` gets each value, `progress` the number of records since the last call.

    With `committed_only` aborted records are not seen (read_committed). CommandError when the broker stops answering.
    """
    records = 0
    ends: dict[int, int] = {}
    for messages in _batches(bootstrap, topic, committed_only, ends):
        for value in messages:
            take(value)
        records += len(messages)
        progress(len(messages))
    return Output(records, ends)


def _batches(bootstrap: str, topic: str, committed_only: bool, ends: dict[int, int]) -> Iterator[list[bytes]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-check",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 10,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_QUIET_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        quiet_s = 0.0
        while len(ends) < len(partitions):
            # consume() waits for a whole batch, and the end of a partition does not wake it: so a short time, often.
            messages = consumer.consume(_BATCH, timeout=_WAIT_S)
            quiet_s = 0.0 if messages else quiet_s + _WAIT_S
            if quiet_s > _QUIET_S:
                raise CommandError(f"the check waited {_QUIET_S:.0f} s for records of {topic} and none came")
            yield list(_values(messages, ends))
    finally:
        consumer.close()


def _values(messages: list[Any], ends: dict[int, int]) -> Iterator[bytes]:
    from confluent_kafka import KafkaError

    for message in messages:
        error = message.error()
        if error is None:
            yield message.value() or b""
        elif error.code() == KafkaError._PARTITION_EOF:
            ends[message.partition()] = message.offset()
        elif error.fatal() or not error.retriable():
            raise CommandError(f"the check could not read the output: {error}")
