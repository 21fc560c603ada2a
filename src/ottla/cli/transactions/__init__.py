"""`ottla transactions`: list, describe and watch transactions, find those that hang or hold back readers, end them."""

from __future__ import annotations

import typer

from ottla.cli.transactions import end, look, repair, watch

app = typer.Typer(
    no_args_is_help=True,
    help="List, describe and watch transactions; find those that hang or hold back readers; abort or commit them.\n\n"
    "Example: `ottla transactions who-holds orders`",
)
app.command("list")(look.list_transactions)
app.command("describe")(look.describe)
app.command("find-hanging")(repair.find_hanging)
app.command("who-holds")(repair.who_holds)
app.command("watch")(watch.watch)
app.command("abort")(end.abort)
app.command("commit")(end.commit)
