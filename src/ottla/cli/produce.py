"""`ottla produce`: records from standard input or a file."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, NamedTuple

import typer

from ottla.cli.common import DEFAULT_BOOTSTRAP, Bootstrap, CommandError, Config, producer_config, say

if TYPE_CHECKING:
    from ottla import Delivery, Producer

#: After a fault or Ctrl-C: time for the transaction to be aborted.
_CLOSE_S = 2.0


class Input(NamedTuple):
    """One record to send."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def produce(
    topic: Annotated[str, typer.Argument(help="Where to.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read this file, not standard input.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="What stands between key and value in a line.")
    ] = None,
    from_json: Annotated[
        bool, typer.Option("--json", help='Lines are objects: {"key": …, "value": …, "partition": …, "headers": {…}}.')
    ] = False,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", help="All of the input in one transaction.")
    ] = None,
    config: Config = None,
) -> None:
    """Send one record a line, idempotently, and wait until all are acknowledged.

    Example: `echo 'k1:hello' | ottla produce orders --key-separator :`
    """
    from ottla import Producer

    settings = producer_config(bootstrap, config)
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    source = _open(file)
    with source, Producer(settings) as producer:
        try:
            records = _records(source, key_separator, from_json=from_json)
            if transactional_id is None:
                count = _send_all(producer, topic, records)
            else:
                producer.init_transactions()
                with producer.transaction():
                    count = _send_all(producer, topic, records)
        except BaseException:  # also Ctrl-C: do not wait for a broker that is gone
            producer.close(_CLOSE_S)
            raise
    say(f"{count} records written to {topic}.")


def _send_all(producer: Producer, topic: str, records: Iterator[Input]) -> int:
    """Send every record and wait until it is acknowledged; how many there were.

    Raises the error of the first record that fails, as soon as it is known.
    """
    count = 0
    waiting: deque[Delivery] = deque()
    for record in records:
        waiting.append(
            producer.send(topic, record.value, key=record.key, partition=record.partition, headers=record.headers)
        )
        count += 1
        while waiting and waiting[0].done():
            waiting.popleft().result()
    producer.flush()
    for delivery in waiting:
        delivery.result()
    return count


def _open(file: Path | None) -> BinaryIO:
    if file is None:
        return sys.stdin.buffer
    if not file.exists():
        raise CommandError(f"--file {file} does not exist; leave it away to read standard input")
    if file.is_dir():
        raise CommandError(f"--file {file} is a folder; name a file with one record a line")
    return file.open("rb")


def _records(source: BinaryIO, key_separator: str | None, *, from_json: bool) -> Iterator[Input]:
    separator = key_separator.encode() if key_separator else None
    for number, line in enumerate(source, 1):
        line = line.removesuffix(b"\n")
        if from_json:
            yield _from_json(line, number)
        elif separator is None:
            yield Input(line)
        else:
            key, found, value = line.partition(separator)
            if not found:
                raise CommandError(f"line {number} has no {key_separator!r}; every line needs key, separator, value")
            yield Input(value, key)


_FIELDS = {"key", "value", "partition", "headers"}


def _from_json(line: bytes, number: int) -> Input:
    try:
        fields = json.loads(line)
        headers = tuple((_name(name), _bytes(value)) for name, value in (fields.get("headers") or {}).items())
        unknown = sorted(set(fields) - _FIELDS)
        if unknown:
            raise ValueError(f"unknown field {unknown[0]!r}; there are {', '.join(sorted(_FIELDS))}")
        partition = fields.get("partition")
        if partition is not None and type(partition) is not int:
            raise ValueError(f"partition must be a whole number, not {json.dumps(partition)}")
        return Input(_bytes(fields.get("value")), _bytes(fields.get("key")), partition, headers)
    except (ValueError, AttributeError) as fault:
        raise CommandError(f'line {number} is not an object such as {{"key": "k", "value": "v"}}: {fault}') from None


def _name(name: str) -> str:
    """A header's name. Raises ValueError when it cannot be UTF-8: JSON can hold half a character."""
    name.encode()
    return name


def _bytes(value: object) -> bytes | None:
    """Strings as they are, anything else as JSON text, null as null."""
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value)).encode()
