"""`ottla users`: users with SCRAM credentials, which the broker keeps in its metadata log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import DEFAULT_BOOTSTRAP, Bootstrap, CommandError, Config, Json, admin_config, print_rows, say

if TYPE_CHECKING:
    from ottla.client.admin.users import ScramMechanism

app = typer.Typer(
    no_args_is_help=True,
    help="List, set and delete users with SCRAM passwords.\n\nExample: `ottla users set alice`",
)

Names = Annotated[list[str] | None, typer.Argument(help="Users; all if none is named.")]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option("--mechanism", metavar="SCRAM-SHA-512", help="Only this mechanism; may be repeated. Both by default."),
]


@app.command("list")
def list_users(
    users: Names = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, config: Config = None, as_json: Json = False
) -> None:
    """List users, with the iterations of each mechanism.

    Example: `ottla users list`
    """
    from ottla import Admin

    with Admin(admin_config(bootstrap, config)) as admin:
        found = admin.describe_user_scram_credentials(users or ())
    rows = [
        {"user": user, "mechanism": mechanism.mechanism, "iterations": iterations}
        for user, mechanisms in found.items()
        for mechanism, iterations in mechanisms.items()
    ]
    print_rows(rows, ("user", "mechanism", "iterations"), as_json=as_json, none="There are no users.")


@app.command("set")
def set_user(
    user: Annotated[str, typer.Argument(help="The user's name.")],
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", help="Its first line is the password; else you are asked."),
    ] = None,
    mechanism: Mechanisms = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
) -> None:
    """Add a user, or give one a new password.

    Example: `ottla users set alice`
    """
    from ottla import Admin, SetScramCredential
    from ottla.base.secret import Secret

    wanted = _mechanisms(mechanism)
    if password_file is None:
        text = str(typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True))
    else:
        try:
            text = password_file.read_text().partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as fault:
            reason = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8"
            raise CommandError(f"cannot read {password_file}: {reason}") from None
    if not text:
        raise CommandError("the password is empty")
    with Admin(admin_config(bootstrap, config)) as admin:
        for each in wanted:  # a broker takes one change of a user in a request
            admin.alter_user_scram_credentials([SetScramCredential(user, each, Secret(text))])
    say(f"{user} has a password for {' and '.join(each.mechanism for each in wanted)}.")


@app.command("delete")
def delete_user(
    user: Annotated[str, typer.Argument(help="The user's name.")],
    mechanism: Mechanisms = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
) -> None:
    """Delete a user. Connections that are open stay, until their session ends (connections.max.reauth.ms).

    Example: `ottla users delete alice`
    """
    from ottla import Admin, DeleteScramCredential

    named = _mechanisms(mechanism)
    with Admin(admin_config(bootstrap, config)) as admin:
        there = admin.describe_user_scram_credentials([user])[user]
        wanted = [each for each in named if each in there]
        if not wanted:
            raise CommandError(f"{user} has no password for {', '.join(mechanism or ())}")
        for each in wanted:
            admin.alter_user_scram_credentials([DeleteScramCredential(user, each)])
    say(f"{user} has no password for {' and '.join(each.mechanism for each in wanted)} any more.")


def _mechanisms(names: list[str] | None) -> list[ScramMechanism]:
    from ottla import ScramMechanism

    known = {each.mechanism: each for each in ScramMechanism}
    unknown = [each for each in names or () if each.upper() not in known]
    if unknown:
        raise CommandError(f"{unknown[0]} is no mechanism with passwords; there are {' and '.join(known)}")
    return [known[each.upper()] for each in names or known]
