"""Reads the output with confluent-kafka, so that no code of ours judges our own; without it, with our consumer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from ottla.cli.common import CommandError, admin_config, consumer_config, existing_partitions
from ottla.cli.demo.access import Access
from ottla.cli.demo.expected import Found

_BATCH = 10_000
_WAIT_S = 0.2
_QUIET_S = 30.0
_NOTHING_CAME = f"the check waited {_QUIET_S:.0f} s for records of {{}} and none came"


class Output(NamedTuple):
    """The output topic as read at one isolation level: the number of records, and each partition's end."""

    records: int
    ends: dict[int, int]


def reader(access: Access) -> str:
    """Whose consumer reads the output."""
    return "confluent-kafka" if access.is_foreign and find_spec("confluent_kafka") else "ottla"


def parse(value: bytes) -> Found:
    """One record of the output, as examples/wordcount.py writes it."""
    fields = json.loads(value)
    return Found(fields["word"], fields["count"], fields["partition"], fields["offset"])


def read_output(
    bootstrap: str,
    topic: str,
    access: Access,
    *,
    committed_only: bool,
    take: Callable[[bytes], None],
    progress: Callable[[int], None],
) -> Output:
    """Read the whole topic; `take` gets each value, `progress` the number of records since the last call.

    With `committed_only` aborted records are not seen (read_committed). CommandError when the broker stops answering.
    """
    records = 0
    ends: dict[int, int] = {}
    batches = _own_batches if reader(access) == "ottla" else _batches
    for messages in batches({"bootstrap.servers": bootstrap, **access.reader}, topic, committed_only, ends):
        for value in messages:
            take(value)
        records += len(messages)
        progress(len(messages))
    return Output(records, ends)


def _batches(
    settings: Mapping[str, str], topic: str, committed_only: bool, ends: dict[int, int]
) -> Iterator[list[bytes]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer: Any = Consumer(
        {
            **settings,
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
            # consume() waits for a whole batch, and the end of a partition does not wake it: wait briefly, and often.
            messages = consumer.consume(_BATCH, timeout=_WAIT_S)
            quiet_s = 0.0 if messages else quiet_s + _WAIT_S
            if quiet_s > _QUIET_S:
                raise CommandError(_NOTHING_CAME.format(topic))
            yield list(_values(messages, ends))
    finally:
        consumer.close()


def _own_batches(
    reach: Mapping[str, str], topic: str, committed_only: bool, ends: dict[int, int]
) -> Iterator[list[bytes]]:
    from ottla import Admin, Consumer

    isolation = "read_committed" if committed_only else "read_uncommitted"
    address = reach["bootstrap.servers"]
    chosen = consumer_config(address, isolation_level=isolation, auto_offset_reset="earliest", max_poll_records=_BATCH)
    settings = {**chosen, **reach}
    with Admin({**admin_config(address), **reach}) as admin:
        partitions = existing_partitions(admin, [topic])
    with Consumer(settings) as consumer:
        consumer.assign(partitions)
        last = consumer.end_offsets(partitions)
        quiet_s = 0.0
        while len(ends) < len(partitions):
            records = consumer.poll(_WAIT_S)
            quiet_s = 0.0 if records else quiet_s + _WAIT_S
            if quiet_s > _QUIET_S:
                raise CommandError(_NOTHING_CAME.format(topic))
            yield [record.value or b"" for record in records]
            positions = {tp: consumer.position(tp) for tp in partitions if tp.partition not in ends}
            ends |= {tp.partition: at for tp, at in positions.items() if at >= last[tp]}


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
