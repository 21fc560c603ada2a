"""`ottla consume`: records to standard output."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    consumer_config,
    existing_partitions,
    only,
    say,
)
from ottla.cli.printer import Printer
from ottla.cli.watch import ANSWER_WITHIN_MS, Watch

if TYPE_CHECKING:
    from ottla import Consumer, TopicPartition

_CLOSES_SOON_S = 2.0


def consume(
    topics: Annotated[list[str], typer.Argument(help="Topics, or TOPIC:PARTITION to read one partition.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member; commit what was printed.")
    ] = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="From the oldest record on.")] = False,
    max_records: Annotated[int | None, typer.Option("--max", "-n", min=1, help="End after so many records.")] = None,
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
    from ottla import Admin, Consumer
    from ottla.client.config.admin import ADMIN_CONFIG

    settings = consumer_config(
        bootstrap,
        config,
        isolation_level="read_uncommitted" if read_uncommitted else "read_committed",
        auto_offset_reset="earliest" if from_beginning or until_end else "latest",
        enable_auto_commit=group is not None,
    )
    if group is not None:
        _refuse_single_partitions(topics)
        settings["group.id"] = group
    asking = {**only(settings, ADMIN_CONFIG), "default.api.timeout.ms": ANSWER_WITHIN_MS}
    with _closed(Consumer(settings)) as consumer, Admin(asking) as asker:
        with Admin(only(settings, ADMIN_CONFIG)) as admin:
            partitions = existing_partitions(admin, topics)
        watch = Watch(asker, partitions, group=group, give_up=until_end)
        if group is not None:
            consumer.subscribe(topics, on_assigned=watch.on_assigned)
        else:
            consumer.assign(partitions)
        ends = dict(consumer.end_offsets(partitions)) if until_end and group is None else None
        printer = Printer(consumer, watch, in_group=group is not None, as_json=as_json)
        left = max_records
        while left is None or left > 0:
            count = printer.poll(left)
            left = None if left is None else left - count
            if until_end and _at_end(consumer, watch, ends):
                return


@contextmanager
def _closed(consumer: Consumer) -> Iterator[Consumer]:
    """Close the consumer at the end. Says what it waits for if that takes long because the broker is gone."""
    late = threading.Timer(_CLOSES_SOON_S, say, ["ottla: committing and leaving the group; Ctrl-C to not wait for it"])
    late.daemon = True
    try:
        yield consumer
    finally:
        late.start()
        try:
            consumer.close()
        finally:
            late.cancel()


def _refuse_single_partitions(topics: list[str]) -> None:
    single = [name for name in topics if ":" in name]
    if single:
        raise CommandError(f"{single[0]}: a group shares out whole topics; leave --group or the partition away")


def _at_end(consumer: Consumer, watch: Watch, ends: dict[TopicPartition, int] | None) -> bool:
    """Whether everything that existed at the start has been printed. In a group: by its members together.

    An assignment may be empty for a moment, or lack a partition that another member is still to give up. So it counts
    only when the group has given out every partition.
    """
    assigned = consumer.assignment()
    if ends is not None:
        return all(consumer.position(tp) >= ends[tp] for tp in assigned)
    if not watch.assigned or any(consumer.current_lag(tp) != 0 for tp in assigned):
        return False
    if not watch.all_are_given_out(consumer.group_metadata().member_id, frozenset(assigned)):
        return False
    if not assigned:
        say("The group's other members read every partition.")
    return True
