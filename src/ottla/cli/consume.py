"""`ottla consume`: records to standard output."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import DEFAULT_BOOTSTRAP, Bootstrap, CommandError, Config, client_config, topic_partition

if TYPE_CHECKING:
    from ottla import Consumer, ConsumerRecord, TopicPartition

_POLL_S = 0.5


def consume(
    topics: Annotated[list[str], typer.Argument(help="Topics, or TOPIC:PARTITION to read one partition.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Read as a member and commit offsets.")] = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="From the oldest record on.")] = False,
    max_records: Annotated[int | None, typer.Option("--max", "-n", help="End after so many records.")] = None,
    until_end: Annotated[bool, typer.Option("--until-end", "-e", help="End at what is the end now.")] = False,
    read_uncommitted: Annotated[
        bool, typer.Option("--read-uncommitted", help="Also records of aborted and open transactions.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with offset and key.")] = False,
    config: Config = None,
) -> None:
    """Print records, committed ones only, until Ctrl-C.

    Example: `ottla consume orders --from-beginning --until-end --json`
    """
    from ottla import Consumer

    settings = client_config(
        bootstrap,
        config,
        isolation_level="read_uncommitted" if read_uncommitted else "read_committed",
        auto_offset_reset="earliest" if from_beginning or until_end else "latest",
        enable_auto_commit=group is not None,
    )
    if group is not None:
        settings["group.id"] = group
    with Consumer(settings) as consumer:
        partitions = _partitions(client_config(bootstrap), topics)
        if group is not None:
            consumer.subscribe(topics)
        else:
            consumer.assign(partitions)
        ends = dict(consumer.end_offsets(consumer.assignment())) if until_end and group is None else None
        left = max_records
        while left is None or left > 0:
            for record in consumer.poll(_POLL_S)[:left]:
                _print(record, as_json=as_json)
                left = None if left is None else left - 1
            sys.stdout.flush()
            if until_end and _at_end(consumer, ends):
                return


def _partitions(settings: dict[str, object], topics: list[str]) -> list[TopicPartition]:
    """Every partition of the topics, or the one that TOPIC:PARTITION names; all of them exist."""
    from ottla import Admin, TopicPartition

    single = [TopicPartition(*topic_partition(name)) for name in topics if ":" in name]
    whole = {name for name in topics if ":" not in name}
    with Admin(settings) as admin:
        described = admin.describe_topics(whole | {tp.topic for tp in single})
    there = {TopicPartition(name, each.partition) for name, topic in described.items() for each in topic.partitions}
    for tp in single:
        if tp not in there:
            raise CommandError(f"topic {tp.topic} has no partition {tp.partition}")
    return sorted(tp for tp in there if tp.topic in whole or tp in single)


def _at_end(consumer: Consumer, ends: dict[TopicPartition, int] | None) -> bool:
    """Whether everything that was there at the start has been printed (of a group: of what is assigned now)."""
    assigned = consumer.assignment()
    if ends is None:
        return bool(assigned) and all(consumer.current_lag(tp) == 0 for tp in assigned)
    return all(consumer.position(tp) >= ends[tp] for tp in assigned)


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
    print(json.dumps(fields, ensure_ascii=False))


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode("utf-8", "backslashreplace")
