"""`ottla groups`: list, describe, watch and delete groups, remove members, show, reset and delete offsets."""

from __future__ import annotations

import typer

from ottla.cli.groups import change, look, reset, watch

app = typer.Typer(
    no_args_is_help=True,
    help="List, describe, watch and delete consumer groups; remove members; show, reset and delete offsets.\n\n"
    "Example: `ottla groups reset orders-app orders --to earliest`",
)
app.command("list")(look.list_groups)
app.command("describe")(look.describe)
app.command("offsets")(look.offsets)
app.command("watch")(watch.watch)
app.command("reset")(reset.reset)
app.command("delete-offsets")(change.delete_offsets)
app.command("remove-members")(change.remove_members)
app.command("delete")(change.delete)
