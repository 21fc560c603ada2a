"""The list of commands, with the first sentences of their help: `ottla --help` imports none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import typer


class Command(NamedTuple):
    """A command, or a group of commands, and where it is."""

    name: str
    #: `module:attribute`, below `ottla.cli`; a group's attribute is a `typer.Typer`.
    where: str
    #: The first paragraph of its own help.
    help: str
    #: Further arguments of `typer.Typer.command`.
    settings: Mapping[str, Any] = MappingProxyType({})

    def load(self) -> Any:
        """The command itself."""
        module, attribute = self.where.split(":")
        return getattr(import_module(f"ottla.cli.{module}"), attribute)


COMMANDS: Final = (
    Command(
        "serve",
        "serve:serve",
        "Run a broker until Ctrl-C or SIGTERM. Prints `ottla ready HOST:PORT` when it takes connections.",
    ),
    Command("topics", "topics:app", "List, create, describe, delete and alter topics."),
    Command("produce", "produce:produce", "Send one record a line, idempotently, and wait until all are acknowledged."),
    Command("consume", "consume:consume", "Print records, committed ones only, until Ctrl-C."),
    Command(
        "groups",
        "groups:app",
        "List, describe, watch and delete consumer groups; remove members; show, reset and delete offsets.",
    ),
    Command(
        "assign",
        "assign.command:assign",
        "Show who gets which partition, what would move if a member died or came, and why. Nothing is changed.",
    ),
    Command(
        "transactions",
        "transactions:app",
        "List, describe and watch transactions; find those that hang or hold back readers; abort or commit them.",
    ),
    Command("users", "users:app", "List, set and delete users with SCRAM passwords."),
    Command(
        "certs", "certs:certs", "Make a test authority, and certificates of a broker and of clients, as PEM files."
    ),
    Command("acls", "acls:app", "List, add and remove ACLs: who may do what, on a broker with an authorizer."),
    Command("quotas", "quotas:app", "List, set and remove quotas of users, client ids and addresses."),
    Command("storage", "storage:app", "Look at a data directory, check it, mend it. No broker may run on it."),
    Command(
        "dump-log",
        "dump_log:dump_log",
        "Print segments (.log), indexes (.index, .timeindex, .txnindex) and producer snapshots (.snapshot).",
    ),
    Command(
        "doctor",
        "doctor.command:doctor",
        "Look for what stands in the way of a broker or a Spark pipeline on this machine, and say what to do about it.",
    ),
    Command(
        "run",
        "run_script:run",
        "Run a PySpark pipeline locally or on a cluster. What follows the script is the script's own.",
        # Arguments after the script belong to the script, even --help and --master.
        {"context_settings": {"allow_extra_args": True, "allow_interspersed_args": False}},
    ),
    Command(
        "prepare",
        "prepare:prepare",
        "Make Spark start with half of the work on this machine, for `ottla run` on a local master.",
    ),
    Command(
        "pipeline",
        "pipeline:app",
        "Look at the sinks of Spark pipelines, settle what they have left, and hand over a query's checkpoint.",
    ),
    Command(
        "demo",
        "demo.command:demo",
        "Real text through broker, Spark and back, exactly once, while workers, driver and broker are killed with -9.",
    ),
    Command(
        "bench",
        "bench:bench",
        "Measure producing, consuming, acknowledged writes and transactions, with our client.",
    ),
    Command("history", "history:app", "How Kafka's coordination came to be what it is."),
)


def add_commands(app: typer.Typer, words: Iterable[str]) -> None:
    """Add all commands. Those that `words` do not name are known by name and help only: they will not be called."""
    named = frozenset(words)
    for command in COMMANDS:
        if command.name not in named:
            app.command(command.name, help=command.help)(_not_called)
            continue
        real: Callable[..., Any] | typer.Typer = command.load()
        if isinstance(real, typer.Typer):
            app.add_typer(real, name=command.name)
        else:
            app.command(command.name, **command.settings)(real)


def _not_called() -> None:
    raise AssertionError("a command that nobody has named was called")
