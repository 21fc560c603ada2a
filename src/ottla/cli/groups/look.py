"""`ottla groups list`, `describe` and `offsets`: they only look."""

from __future__ import annotations

from collections.abc import Sequence
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
    print_json,
    print_rows,
    printable,
)
from ottla.cli.groups.common import Group, existing_group

if TYPE_CHECKING:
    from ottla import Admin, TopicPartition
    from ottla.client.admin.types import GroupDescription, MemberDescription

Row = dict[str, object]
_OFFSET_COLUMNS = ("topic", "partition", "offset", "end_offset", "lag", "lag_s")
_MEMBER_COLUMNS = ("member", "instance", "client", "host", "assignment")
#: As Kafka writes them.
_STATES = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
_TYPES = ("classic", "consumer", "share", "streams")


def list_groups(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    state: Annotated[
        list[str] | None, typer.Option("--state", help=f"Only groups in this state: {', '.join(_STATES)}.")
    ] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help=f"Only groups of this type: {', '.join(_TYPES)}.")
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List groups with their types and states. --state and --type may be repeated, or name several with commas.

    Example: `ottla groups list --state Empty,Stable --type consumer`
    """
    from ottla import Admin

    states, types = _named("--state", state, _STATES), _named("--type", type_, _TYPES)
    with Admin(admin_config(bootstrap, config)) as admin:
        found = admin.list_groups(states, types)
    rows: list[Row] = [
        {"group": each.group_id, "type": each.type or None, "state": each.state, "protocol_type": each.protocol_type}
        for each in found
    ]
    none = "There are no such groups." if states or types else "There are no groups."
    print_rows(rows, ("group", "type", "state", "protocol_type"), as_json=as_json, none=none)


def _named(option: str, given: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """The names in an option as Kafka writes them. Raises CommandError for one that there is not."""
    by_name = {each.lower(): each for each in known}
    found = []
    for name in (part.strip() for each in given or () for part in each.split(",")):
        if name.lower() not in by_name:
            raise CommandError(f"{option} {name!r} is none of {', '.join(known)}")
        found.append(by_name[name.lower()])
    return found


def describe(
    group: Group, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, config: Config = None, as_json: Json = False
) -> None:
    """Show a group's state, its members with what each was assigned, and how far it is behind.

    `lag` counts offsets; `lag_s` says for how many seconds the first unread record has waited, by its timestamp.

    Example: `ottla groups describe billing`
    """
    from ottla import Admin

    with Admin(admin_config(bootstrap, config)) as admin:
        found = existing_group(admin, group)
        rows = _lags(admin, found)
    members = [_member(each, found) for each in found.members]
    if as_json:
        print_json(_data(found, members, rows))
        return
    print(printable(_headline(found)))
    columns = [*_MEMBER_COLUMNS, *(["epoch", "target"] if found.epoch is not None else [])]
    print_rows(members, columns, as_json=False, none="The group has no members now.")
    print_rows(rows, (*_OFFSET_COLUMNS, "client"), as_json=False, none="It has committed nothing.")


def _headline(group: GroupDescription) -> str:
    said = [f"{group.group_id}: {group.state}", f"type {group.type}", f"assignor {group.protocol or '-'}"]
    if group.epoch is not None:
        said.append(f"epoch {group.epoch} (target assignment of epoch {group.target_epoch})")
    said += [f"coordinator {group.coordinator}", counted(len(group.members), "member")]
    return ", ".join(said)


def _data(group: GroupDescription, members: list[Row], rows: list[Row]) -> Row:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol or None,
        "coordinator": group.coordinator,
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "members": members,
        "offsets": rows,
    }


def _member(member: MemberDescription, group: GroupDescription) -> Row:
    row: Row = {
        "member": member.member_id,
        "instance": member.group_instance_id,
        "client": member.client_id,
        "host": member.host,
        "assignment": [str(tp) for tp in member.partitions],
        "topics": list(member.topics),
    }
    if group.epoch is not None:
        row |= {"pattern": member.pattern, "epoch": member.epoch, "classic": member.is_classic}
        row["target"] = [str(tp) for tp in member.target or ()]
    return row


def offsets(
    group: Group, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, config: Config = None, as_json: Json = False
) -> None:
    """Show what a group has committed, and how far it is behind.

    Example: `ottla groups offsets billing --json`
    """
    from ottla import Admin

    with Admin(admin_config(bootstrap, config)) as admin:
        rows = _lags(admin, existing_group(admin, group))
    print_rows(rows, _OFFSET_COLUMNS, as_json=as_json, none=f"{group} has committed nothing.")


def _lags(admin: Admin, group: GroupDescription) -> list[Row]:
    """A row for each partition that the group has committed an offset of, or that a member has."""
    readers: dict[TopicPartition, str] = {tp: each.client_id for each in group.members for tp in each.partitions}
    lags = admin.list_group_lags(group.group_id, readers)
    now_ms = SystemClock().now_ms()
    rows: list[Row] = []
    for tp, lag in sorted(lags.items()):
        age_ms = lag.age_ms(now_ms)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "offset": lag.committed.offset if lag.committed else None,
                "end_offset": lag.end_offset,
                "lag": lag.offsets,
                "lag_s": None if age_ms is None else round(age_ms / 1000, 1),
                "client": readers.get(tp),
                "metadata": lag.committed.metadata if lag.committed else None,
            }
        )
    return rows
