"""What the commands about groups share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import CommandError

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.client.admin.types import GroupDescription

Group = Annotated[str, typer.Argument(help="The group's id.")]


def existing_group(admin: Admin, group: str) -> GroupDescription:
    """The group. Raises CommandError when there is none."""
    found = find_group(admin, group)
    if found is None:
        raise CommandError(f"there is no group {group}; `ottla groups list` shows which there are")
    return found


def find_group(admin: Admin, group: str) -> GroupDescription | None:
    """The group; None when there is none. An older broker describes it as dead then, a newer one answers an error."""
    from ottla import KafkaError
    from ottla.wire.errors import ErrorCode

    try:
        found = admin.describe_groups([group])[group]
    except KafkaError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return found if found.exists else None
