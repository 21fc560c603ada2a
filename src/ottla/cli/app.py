"""The command tree. It turns every fault into one sentence and a non-zero exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ottla.base.errors import OttlaError
from ottla.cli.commands import add_commands
from ottla.cli.common import use_config_file
from ottla.cli.signals import interrupts

#: Exit codes as shells count them: 128 + the signal's number.
_EXIT_INTERRUPTED = 130

#: What a user can do about a broker's error, by Kafka's name of the error.
_HINTS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "`ottla topics list` shows which there are, `ottla topics create` makes one",
    "TOPIC_ALREADY_EXISTS": "choose another name, or `ottla topics alter` changes this one",
    "GROUP_ID_NOT_FOUND": "`ottla groups list` shows which there are",
    "INVALID_GROUP_ID": "the id of a group is a text that is not empty; `ottla groups list` shows which there are",
    "NON_EMPTY_GROUP": "stop its members first; `ottla groups describe` shows them",
    "GROUP_SUBSCRIBED_TO_TOPIC": "members read the topic; stop them first",
    "UNKNOWN_MEMBER_ID": "`ottla groups describe` shows the group's members",
    "SECURITY_DISABLED": "start the broker with authorizer.class.name (docs/security.md), then ACLs have an effect",
    "TOPIC_AUTHORIZATION_FAILED": "`ottla acls list --topic NAME` shows who may; `ottla acls add` lets you",
    "GROUP_AUTHORIZATION_FAILED": "`ottla acls list --group ID` shows who may; `ottla acls add` lets you",
    "CLUSTER_AUTHORIZATION_FAILED": "only a super user, or somebody with an ACL on the cluster, may do that",
    "TRANSACTIONAL_ID_NOT_FOUND": "`ottla transactions list` shows which there are",
}


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from ottla.wire import compiled

        slower = "interpreted, so slower: installed again where there is a C compiler, they are compiled"
        print(f"ottla {version('ottla')} (codecs {'compiled' if compiled() else slower})")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE|PROFILE",
            help="A client's properties file: brokers, TLS, SASL; or the name of one in ~/.config/ottla/ "
            "(NAME.properties). It stands before the command.",
        ),
    ] = None,
) -> None:
    """Options of every command."""
    if config is None:
        use_config_file(None)
        return
    from ottla.cli.profiles import config_file

    use_config_file(config_file(config, os.environ))


def _app(arguments: Sequence[str]) -> typer.Typer:
    """The command tree, with what `arguments` name."""
    app = typer.Typer(
        name="ottla",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Kafka's group coordination and exactly-once machinery in Python: broker, client and PySpark pipelines."
        "\n\nExample: `ottla serve --port 9092 --data-dir ./data`, and beside it `ottla topics create orders`",
    )
    app.callback()(_options)
    add_commands(app, arguments)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code. 2 is a wrong command line, 1 any other fault, 130 Ctrl-C."""
    with interrupts.install():
        try:
            code = _run(arguments)
        except KeyboardInterrupt:
            code = _EXIT_INTERRUPTED
    if code == _EXIT_INTERRUPTED:
        # When an interrupt comes while CPython evaluates a string (of a NamedTuple, at an import), CPython remembers it
        # as not handled and ends the process by SIGINT instead of our exit code. Evaluating another string undoes that.
        eval("None")
    return interrupts.exit_code if code == _EXIT_INTERRUPTED else code


def _run(arguments: Sequence[str]) -> int:
    try:
        try:
            _app(arguments)(args=list(arguments), prog_name="ottla")
        finally:
            sys.stdout.flush()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except OttlaError as fault:
        next_step = _next_step(fault)
        said = str(fault).removesuffix(".") if next_step else str(fault)  # of a broker's, which may be a sentence
        print(f"ottla: {said}{next_step}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). That is no fault, but nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as fault:
        print(f"ottla: {fault}", file=sys.stderr)
        return 1
    return 0


def _next_step(fault: OttlaError) -> str:
    """What a user can do about faults that may happen in every command."""
    why = fault.__cause__ if isinstance(fault, TimeoutError) else fault
    if isinstance(why, ConnectionError) and "security.protocol" in str(why):  # somebody was there, and has hung up
        return ""
    if why is None or isinstance(why, ConnectionError):  # no answer came, or no broker listens there
        return ". Is a broker running there? `ottla serve` starts one; --bootstrap HOST:PORT names another."
    hint = _HINTS.get(getattr(getattr(fault, "code", None), "name", ""))
    return f"; {hint}" if hint else ""
