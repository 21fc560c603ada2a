"""`ottla demo`: the main job as a command."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import CommandError, Json, bootstrap_of_the_file, file_for_every_client, print_json
from ottla.cli.signals import interrupts

if TYPE_CHECKING:
    from ottla.cli.demo.access import Access
    from ottla.cli.demo.drive import Options
    from ottla.cli.demo.progress import Steps
    from ottla.cli.demo.report import Outcome


class Sink(StrEnum):
    """What the pipeline's sink promises."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


Secure = Annotated[
    bool, typer.Option("--secure", help="All over TLS, with passwords, and ACLs that allow just what is needed.")
]


def demo(
    sink: Annotated[
        Sink, typer.Option("--sink", help="at-least-once is the negative control: it must show duplicates.")
    ] = Sink.EXACTLY_ONCE,
    source: Annotated[str | None, typer.Option("--input", help="A text file or folder instead of our texts.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Draws the kills; it is printed, to repeat them.")] = None,
    lines: Annotated[int, typer.Option("--lines", min=1000, help="Repeat the texts to so many lines.")] = 200_000,
    batches: Annotated[int, typer.Option("--batches", min=10, help="Micro-batches of the pipeline, about.")] = 12,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="Of both topics.")] = 4,
    kill: Annotated[bool, typer.Option("--kill/--no-kill", help="Whether anything is killed.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Leave broker and data for a look.")] = False,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="A running broker; it is not killed.")
    ] = None,
    command: Annotated[
        str | None,
        typer.Option("--broker-command", help="Start this broker, {port} and {data_dir} filled in."),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65_535, help="Of the broker; a free one by default.")
    ] = None,
    secure: Secure = False,
    script: Annotated[Path | None, typer.Option("--script", help="The pipeline; examples/wordcount.py.")] = None,
    as_json: Json = False,
) -> None:
    """Real text through broker, Spark and back, exactly once, while workers, driver and broker are killed with -9.

    Ends with 0 only when a foreign consumer finds every word exactly once.

    Example: `ottla demo --seed 7 --keep`
    """
    from ottla.cli.demo.drive import Options
    from ottla.cli.demo.progress import Steps

    _require_spark()
    running = _running_broker(bootstrap, command, secure=secure)
    text = _text(source, lines)
    pipeline = _pipeline(script)
    chosen = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    steps = Steps()
    workdir = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    steps.say(f"seed {chosen}: --seed {chosen} and the same options repeat these kills")
    options = Options(
        seed=chosen,
        semantics=sink.value,
        lines=text,
        partitions=partitions,
        batches=batches,
        bootstrap=running,
        broker_command=command,
        port=port,
        script=pipeline,
        workdir=workdir,
        kill=kill,
        keep=keep,
        secure=secure,
        access=_access(),
    )
    raise typer.Exit(_run(options, steps, as_json=as_json))


def _text(source: str | None, lines: int) -> list[str]:
    """The job's input: that of the user, or our texts, repeated to so many lines. Raises CommandError."""
    from ottla.cli.demo.text import input_lines, reference_lines, repeated, require_countable

    words = reference_lines() if source is None else input_lines(source)
    require_countable(words)
    return repeated(words, lines)


def _access() -> Access:
    from ottla.cli.demo.access import Access, of_the_users_file

    file = file_for_every_client()
    return Access() if file is None else of_the_users_file(*file)


def _running_broker(bootstrap: str | None, command: str | None, *, secure: bool) -> str | None:
    """The running broker that the job is to use, by --bootstrap or by the file of `ottla --config`; None to start one.

    Raises CommandError for what cannot be together.
    """
    if bootstrap is not None and command is not None:
        raise CommandError("--bootstrap names a running broker, --broker-command starts one; give one of the two")
    file = file_for_every_client()
    running = bootstrap if command is not None or secure else bootstrap or bootstrap_of_the_file()
    if secure and (running is not None or command is not None):
        raise CommandError("--secure starts a broker of its own: leave out --bootstrap and --broker-command")
    if file is not None and running is None:
        raise CommandError(
            f"{file[0]} is for a running broker: give --bootstrap HOST:PORT, without --broker-command and --secure"
        )
    return running


def _run(options: Options, steps: Steps, *, as_json: bool) -> int:
    """Run the job, print its table, and keep or remove its files. Returns the exit code."""
    from ottla.cli.demo.drive import Demo
    from ottla.cli.demo.processes import ProcessError

    steps.say(f"sink {options.semantics}; files in {options.workdir}")
    run = Demo(options, steps)
    keep = options.keep
    try:
        outcome = run.run()
        _show(outcome, as_json=as_json)
        keep = keep or (options.semantics == Sink.EXACTLY_ONCE and not outcome.exact)
        if keep:
            run.say_what_is_kept()
    except BaseException as fault:
        keep = keep or isinstance(fault, ProcessError)
        if keep:
            steps.say(f"the output of broker and pipeline is kept in {options.workdir}")
        raise
    finally:
        if not keep:
            _remove(options.workdir)
    return 0 if outcome.exact else 1


def _remove(directory: Path) -> None:
    """Remove the directory, even if signals arrive meanwhile."""
    with interrupts.held():
        shutil.rmtree(directory, ignore_errors=True)


def _show(outcome: Outcome, *, as_json: bool) -> None:
    from ottla.cli.demo.report import verdict

    if as_json:
        print_json(outcome.as_json())
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in outcome.rows():
        table.add_row(name, value)
    console = Console(highlight=False)
    console.print(table)
    console.print(verdict(outcome), style="green" if outcome.exact else "bold red", markup=False)


def _require_spark() -> None:
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        raise CommandError(
            "the demo runs a Spark pipeline; `pip install 'ottla[demo]'` adds PySpark and a foreign consumer"
        )
    from ottla.spark.run import find_java

    find_java(os.environ)


def _pipeline(script: Path | None) -> Path:
    """The pipeline: `script`, or examples/wordcount.py of a checkout; a wheel has it beside this file."""
    from ottla.cli.run_script import require_script

    if script is not None:
        require_script(script)
        return script
    here = Path(__file__).resolve()
    for found in (here.with_name("wordcount.py"), here.parents[4] / "examples" / "wordcount.py"):
        if found.is_file():
            return found
    raise CommandError("examples/wordcount.py is not there (it is in the repository); name a script with --script")
