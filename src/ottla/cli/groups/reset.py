"""`ottla groups reset`: move what a group has committed; first it only shows what it would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.base.clock import SystemClock
from ottla.base.words import counted
from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    admin_config,
    existing_partitions,
    print_rows,
    say,
)
from ottla.cli.groups.common import Group, find_group, refuse_other_types
from ottla.cli.groups.offset_file import to_csv
from ottla.cli.groups.targets import Way, plan, way_of

if TYPE_CHECKING:
    from ottla import Admin, TopicPartition

_COLUMNS = ("topic", "partition", "offset", "new_offset", "change")


def reset(
    group: Group,
    topics: Annotated[list[str] | None, typer.Argument(help="Topics, or TOPIC:PARTITION.")] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that the group has committed an offset of.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="earliest, latest, current, an offset, or a time such as 2026-11-21T10:00:00+00:00 "
            "(UTC if it has no zone).",
        ),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="To so long ago: an ISO 8601 duration such as PT2H or P7D.")
    ] = None,
    shift: Annotated[int | None, typer.Option("--shift", help="By so many offsets, back when negative.")] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="To the offsets in a CSV file, as --export prints them.")
    ] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Print the new offsets as CSV: topic,partition,offset.")
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without this it is only shown.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Move a group's committed offsets. The group must have no members.

    A file is CSV without a header, as `kafka-consumer-groups.sh --export` writes it. To save and restore offsets:

    `ottla groups reset billing --all-topics --to current --export > offsets.csv`

    `ottla groups reset billing --from-file offsets.csv --execute`

    Example: `ottla groups reset billing orders --to earliest --execute`
    """
    from ottla import Admin, OffsetAndMetadata

    if export and as_json:
        raise CommandError("--export prints CSV: leave it, or --json away")
    now_ms = SystemClock().now_ms()
    way = way_of(group, to=to, by_duration=by_duration, shift=shift, from_file=from_file, now_ms=now_ms)
    _check_scope(way, topics or (), all_topics=all_topics)
    with Admin(admin_config(bootstrap, config)) as admin:
        is_new = not _must_be_empty(admin, group)
        old = {tp: each.offset for tp, each in admin.list_group_offsets(group).items()}
        made = plan(admin, way, _partitions(admin, group, way, topics or (), old), old)
        if execute:
            admin.alter_group_offsets(group, {tp: OffsetAndMetadata(offset) for tp, offset in made.offsets.items()})
    if is_new:
        say(f"There was no group {group}; {'now there is' if execute else '--execute makes it'}.")
    for remark in made.remarks:
        say(remark)
    _show(old, made.offsets, as_csv=export, as_json=as_json)
    if not execute:
        say("Nothing was changed; add --execute to do it.")


def _check_scope(way: Way, topics: Sequence[str], *, all_topics: bool) -> None:
    """Raises CommandError unless it is said, once, which partitions."""
    if way.offsets is not None:
        if topics or all_topics:
            raise CommandError("--from-file names the partitions: leave topics and --all-topics away")
    elif bool(topics) == all_topics:
        raise CommandError("say which partitions: topics, TOPIC:PARTITION, or --all-topics")


def _must_be_empty(admin: Admin, group: str) -> bool:
    """Raises CommandError if the group has members. Returns whether there is such a group."""
    found = find_group(admin, group)
    if found is None:
        refuse_other_types(admin, [group])
        return False
    if found.members:
        raise CommandError(
            f"{group} is {found.state} and has {counted(len(found.members), 'member')}: stop them first, "
            f"or remove those that are gone with `ottla groups remove-members {group}`"
        )
    return True


def _partitions(
    admin: Admin, group: str, way: Way, topics: Sequence[str], old: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """The partitions whose offsets are moved. Raises CommandError when one of them does not exist."""
    if way.offsets is not None:
        return existing_partitions(admin, [f"{tp.topic}:{tp.partition}" for tp in way.offsets])
    if topics:
        return existing_partitions(admin, topics)
    if not old:
        raise CommandError(f"{group} has committed nothing: name topics instead of --all-topics")
    return existing_partitions(admin, [f"{tp.topic}:{tp.partition}" for tp in old])


def _show(old: Mapping[TopicPartition, int], new: Mapping[TopicPartition, int], *, as_csv: bool, as_json: bool) -> None:
    if as_csv:
        print(to_csv(new), end="")
    else:
        print_rows(_rows(old, new), _COLUMNS, as_json=as_json, none="No such partitions.")


def _rows(old: Mapping[TopicPartition, int], new: Mapping[TopicPartition, int]) -> list[dict[str, object]]:
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": old.get(tp),
            "new_offset": offset,
            "change": offset - old[tp] if tp in old else None,
        }
        for tp, offset in sorted(new.items())
    ]
