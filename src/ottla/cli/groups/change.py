"""`ottla groups delete`, `delete-offsets` and `remove-members`."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.base.words import counted
from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    admin_config,
    existing_partitions,
    print_json,
    say,
)
from ottla.cli.groups.common import Group, refuse_other_types


def delete(
    groups: Annotated[list[str], typer.Argument(help="The groups' ids.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
) -> None:
    """Delete groups that have no members, with their offsets.

    Example: `ottla groups delete billing`
    """
    from ottla import Admin

    deleted: list[str] = []
    with Admin(admin_config(bootstrap, config)) as admin:
        try:
            for group in dict.fromkeys(groups):
                admin.delete_groups([group])
                deleted.append(group)
        finally:
            if deleted:
                say(f"Deleted {', '.join(deleted)}.")


def delete_offsets(
    group: Group,
    topics: Annotated[list[str], typer.Argument(help="Topics, or TOPIC:PARTITION.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
) -> None:
    """Delete what a group has committed of topics that no member subscribes to. The group itself stays.

    Example: `ottla groups delete-offsets billing orders:3`
    """
    from ottla import Admin

    with Admin(admin_config(bootstrap, config)) as admin:
        partitions = existing_partitions(admin, topics)
        found = admin.list_group_offsets(group, partitions)
        admin.delete_group_offsets(group, partitions)
    named = f": {', '.join(map(str, sorted(found)))}" if found else ""
    say(f"Deleted {counted(len(found), 'offset')} of {group}{named}.")


def remove_members(
    group: Group,
    member: Annotated[
        list[str] | None, typer.Option("--member", help="A member's id, as `describe` shows it; may be repeated.")
    ] = None,
    instance: Annotated[
        list[str] | None, typer.Option("--instance", help="A static member's group.instance.id; may be repeated.")
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="All members.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="For the coordinator's log.")] = "removed by ottla groups",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Remove members that are gone and did not leave, so that the group need not wait until their sessions end.

    A member that still lives joins again as soon as it hears of it.

    Example: `ottla groups remove-members billing --instance worker-3`
    """
    from ottla import Admin, KafkaError
    from ottla.wire.errors import ErrorCode

    if everybody == bool(member or instance):
        raise CommandError("say which members: --member ID, --instance ID, or --all")
    with Admin(admin_config(bootstrap, config)) as admin:
        try:
            removed = admin.remove_members(group, member, instances=instance or (), reason=reason)
        except KafkaError as error:
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                refuse_other_types(admin, [group])
            raise
    if as_json:
        print_json({"group": group, "removed": removed})
        return
    say(f"Removed {counted(len(removed), 'member')} from {group}{': ' if removed else ''}{', '.join(removed)}.")
