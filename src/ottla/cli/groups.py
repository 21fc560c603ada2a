"""`ottla groups`: list, describe and delete consumer groups, show and reset their offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    admin_config,
    existing_partitions,
    print_json,
    print_rows,
    say,
)

if TYPE_CHECKING:
    from ottla import Admin, OffsetAndMetadata, TopicPartition
    from ottla.client.admin.types import GroupDescription

app = typer.Typer(
    no_args_is_help=True,
    help="List, describe and delete consumer groups; show and reset their offsets.\n\n"
    "Example: `ottla groups reset orders-app orders --to earliest`",
)

_OFFSET_COLUMNS = ("topic", "partition", "offset", "end_offset", "lag")

Group = Annotated[str, typer.Argument(help="The group's id.")]


@app.command("list")
def list_groups(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, config: Config = None, as_json: Json = False) -> None:
    """List groups with their states.

    Example: `ottla groups list`
    """
    from ottla import Admin

    with Admin(admin_config(bootstrap, config)) as admin:
        found = admin.list_groups()
    rows: list[dict[str, object]] = [
        {"group": each.group_id, "state": each.state, "protocol_type": each.protocol_type} for each in found
    ]
    print_rows(rows, ("group", "state", "protocol_type"), as_json=as_json, none="There are no groups.")


@app.command("describe")
def describe(
    group: Group, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, config: Config = None, as_json: Json = False
) -> None:
    """Show a group's state, its members with what each was assigned, and what it has committed.

    Example: `ottla groups describe billing`
    """
    from ottla import Admin

    with Admin(admin_config(bootstrap, config)) as admin:
        found = admin.describe_groups([group])[group]
        _must_exist(found)
        committed = _committed(admin, group)
    members: list[dict[str, object]] = [
        {
            "member": member.member_id,
            "instance": member.group_instance_id,
            "client": member.client_id,
            "host": member.host,
            "assignment": [str(tp) for tp in member.partitions],
        }
        for member in found.members
    ]
    if as_json:
        head = {"group": group, "state": found.state, "protocol": found.protocol or None}
        print_json({**head, "members": members, "offsets": committed})
        return
    print(f"{group}: {found.state}, protocol {found.protocol or '-'}, {len(members)} members")
    columns = ("member", "instance", "client", "host", "assignment")
    print_rows(members, columns, as_json=False, none="The group has no members now.")
    print_rows(committed, _OFFSET_COLUMNS, as_json=False, none="It has committed nothing.")


@app.command("offsets")
def offsets(
    group: Group, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, config: Config = None, as_json: Json = False
) -> None:
    """Show what a group has committed, and how far it is behind.

    Example: `ottla groups offsets billing --json`
    """
    from ottla import Admin

    with Admin(admin_config(bootstrap, config)) as admin:
        rows = _committed(admin, group)
        if not rows:
            _must_exist(admin.describe_groups([group])[group])
    print_rows(rows, _OFFSET_COLUMNS, as_json=as_json, none=f"{group} has committed nothing.")


def _committed(admin: Admin, group: str) -> list[dict[str, object]]:
    """What the group has committed: a row for each partition."""
    from ottla.client.admin.types import OffsetSpec

    committed = admin.list_group_offsets(group)
    ends = admin.list_offsets(dict.fromkeys(committed, OffsetSpec.LATEST))
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": each.offset,
            "end_offset": ends[tp].offset,
            "lag": ends[tp].offset - each.offset,
            "metadata": each.metadata,
        }
        for tp, each in sorted(committed.items())
    ]


@app.command("reset")
def reset(
    group: Group,
    topics: Annotated[list[str], typer.Argument(help="Topics, or TOPIC:PARTITION.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, an offset, or a time such as 2026-11-21T10:00:00+00:00.")
    ] = "earliest",
    shift: Annotated[int | None, typer.Option("--shift", help="By so many records, back when negative.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without this it is only shown.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Move a group's committed offsets. The group must have no members.

    Example: `ottla groups reset billing orders --to earliest --execute`
    """
    from ottla import Admin, OffsetAndMetadata

    at = _target(to)
    with Admin(admin_config(bootstrap, config)) as admin:
        partitions = existing_partitions(admin, topics)
        old = admin.list_group_offsets(group)
        new = _targets(admin, partitions, at) if shift is None else _shifted(admin, partitions, old, shift)
        if execute:
            admin.alter_group_offsets(group, {tp: OffsetAndMetadata(offset) for tp, offset in new.items()})
    rows: list[dict[str, object]] = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": old[tp].offset if tp in old else None,
            "new_offset": offset,
        }
        for tp, offset in sorted(new.items())
    ]
    print_rows(rows, ("topic", "partition", "offset", "new_offset"), as_json=as_json, none="No such partitions.")
    if not execute:
        say("Nothing was changed; add --execute to do it.")


@app.command("delete")
def delete(
    groups: Annotated[list[str], typer.Argument(help="The groups' ids.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
) -> None:
    """Delete groups that have no members, with their offsets.

    Example: `ottla groups delete billing`
    """
    from ottla import Admin

    with Admin(admin_config(bootstrap, config)) as admin:
        admin.delete_groups(groups)
    say(f"Deleted {', '.join(groups)}.")


class _Bounds(NamedTuple):
    """First and next offset of partitions."""

    first: dict[TopicPartition, int]
    last: dict[TopicPartition, int]

    def clamp(self, tp: TopicPartition, offset: int) -> int:
        """`offset`, moved into the log."""
        return min(max(offset, self.first[tp]), self.last[tp])


def _bounds(admin: Admin, partitions: list[TopicPartition]) -> _Bounds:
    from ottla.client.admin.types import OffsetSpec

    first = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    last = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    return _Bounds({tp: at.offset for tp, at in first.items()}, {tp: at.offset for tp, at in last.items()})


class _Target(NamedTuple):
    """What --to means: an offset, or a time in milliseconds (an `OffsetSpec` among them)."""

    offset: int | None = None
    time_ms: int | None = None


def _target(to: str) -> _Target:
    from datetime import datetime

    from ottla.client.admin.types import OffsetSpec

    named = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
    if to in named:
        return _Target(time_ms=named[to])
    if to.isdigit():
        return _Target(offset=int(to))
    try:
        return _Target(time_ms=int(datetime.fromisoformat(to).timestamp() * 1000))
    except ValueError:
        raise CommandError(f"--to {to!r} is neither earliest, latest, an offset nor an ISO time") from None


def _targets(admin: Admin, partitions: list[TopicPartition], to: _Target) -> dict[TopicPartition, int]:
    """The offset each partition goes to. Numbers stay within the log; a time after the last record is the end."""
    bounds = _bounds(admin, partitions)
    if to.time_ms is None:
        return {tp: bounds.clamp(tp, to.offset or 0) for tp in partitions}
    at = admin.list_offsets(dict.fromkeys(partitions, to.time_ms))
    return {tp: at[tp].offset if at[tp].offset >= 0 else bounds.last[tp] for tp in partitions}


def _shifted(
    admin: Admin, partitions: list[TopicPartition], old: Mapping[TopicPartition, OffsetAndMetadata], shift: int
) -> dict[TopicPartition, int]:
    missing = [str(tp) for tp in partitions if tp not in old]
    if missing:
        raise CommandError(f"the group has no offset for {', '.join(missing)} to shift; use --to instead")
    bounds = _bounds(admin, partitions)
    return {tp: bounds.clamp(tp, old[tp].offset + shift) for tp in partitions}


def _must_exist(group: GroupDescription) -> None:
    """A group that a broker does not know is described as dead."""
    if group.state == "Dead":
        raise CommandError(f"there is no group {group.group_id}; `ottla groups list` shows which there are")
