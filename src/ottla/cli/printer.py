"""Prints for `ottla consume`, and makes sure that its group never commits records that were not printed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.cli.common import print_json_line
from ottla.cli.signals import interrupts

if TYPE_CHECKING:
    from ottla import Consumer, ConsumerRecord, TopicPartition
    from ottla.cli.watch import Watch

_POLL_S = 0.5
#: The reader of our output has gone: there is no reason to wait long.
_ASK_COMMITTED_S = 2.0


class Printer:
    """Polls and prints. The consumer commits its positions by itself. So when a record was not printed, its position is
    moved back, and the group's next reader gets the record.

    Printed means written to standard output without a fault. When a pipe's reader ends, nobody knows what it has
    processed and what is still in the pipe; then nothing since the last commit is committed. When a poll's records are
    being printed and an interrupt comes, the whole poll is given back.
    """

    def __init__(self, consumer: Consumer, watch: Watch, *, in_group: bool, as_json: bool) -> None:
        self._consumer = consumer
        self._watch = watch
        self._in_group = in_group
        self._as_json = as_json
        #: For each partition the first offset that was received.
        self._begun: dict[TopicPartition, int] = {}

    def poll(self, limit: int | None) -> int:
        """Print what one poll brings, at most `limit` records; how many there were."""
        records: list[ConsumerRecord] = []
        try:
            with interrupts.held():  # an interrupt between poll() and the assignment would lose the records
                records = self._consumer.poll(_POLL_S)
            self._begun = _first_offsets(records) | self._begun
            if records:
                self._watch.heard()
            else:
                self._watch.heard_nothing()
            printed = records[:limit]
            self._go_back(_first_offsets(records[len(printed) :]))
            for record in printed:
                _print(record, as_json=self._as_json)
            sys.stdout.flush()
        except BrokenPipeError:
            self._go_back_to_committed()
            raise
        except BaseException:
            self._go_back(_first_offsets(records))
            raise
        return len(printed)

    def _go_back_to_committed(self) -> None:
        from ottla.client.errors import ClientError

        offsets = dict(self._begun)
        try:
            if self._in_group:
                committed = self._consumer.committed(self._consumer.assignment(), _ASK_COMMITTED_S)
                offsets |= {tp: each.offset for tp, each in committed.items()}
        except ClientError:
            pass  # then the next reader gets again what this command has printed
        finally:
            self._go_back(offsets)

    def _go_back(self, offsets: Mapping[TopicPartition, int]) -> None:
        with interrupts.held():
            for tp in offsets.keys() & self._consumer.assignment():
                self._consumer.seek(tp, offsets[tp])


def _first_offsets(records: Sequence[ConsumerRecord]) -> dict[TopicPartition, int]:
    from ottla import TopicPartition

    return {TopicPartition(each.topic, each.partition): each.offset for each in reversed(records)}


def _print(record: ConsumerRecord, *, as_json: bool) -> None:
    if not as_json:
        sys.stdout.buffer.write((record.value or b"") + b"\n")
        return
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    print_json_line(fields)


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode("utf-8", "backslashreplace")
