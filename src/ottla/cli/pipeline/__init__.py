"""`ottla pipeline`: the sinks of Spark pipelines and what they have left; a query's checkpoint."""

from __future__ import annotations

import typer

from ottla.cli.pipeline import adopt, look, resolve

app = typer.Typer(
    no_args_is_help=True,
    help="Look at the sinks of Spark pipelines, settle what they have left, and hand over a query's checkpoint.\n\n"
    "Example: `ottla pipeline list`",
)
app.command("list")(look.list_sinks)
app.command("describe")(look.describe)
app.command("resolve")(resolve.resolve)
app.command("adopt")(adopt.adopt)
