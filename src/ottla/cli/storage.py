"""`ottla storage`: looks at a data directory that no broker runs on, says what is wrong with it, and mends it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.base.errors import ConfigError, StorageError
from ottla.base.words import counted
from ottla.cli.common import print_json, print_rows, printable, say

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig
    from ottla.broker.directory.overlay import Change
    from ottla.broker.directory.state import Survey
    from ottla.broker.directory.survey import Progress
    from ottla.broker.disk import Disk
    from ottla.broker.told import Told

#: Exit codes beside 0: something is wrong with the directory; or nothing was looked at.
_WRONG: Final = 1
_NOT_LOOKED_AT: Final = 2
_COLUMNS: Final = (
    "partition",
    "segments",
    "size_bytes",
    "start_offset",
    "end_offset",
    "recovery_point",
    "open_transactions",
    "lost_offsets",
    "cleaned_offset",
    "dirty_percent",
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A data directory: --data-dir, or log.dirs.")]
ServerConfig = Annotated[
    Path | None, typer.Option("--config", help="The broker's server.properties, if its settings for topics matter.")
]
Options = Annotated[
    list[str] | None, typer.Option("-o", "--option", metavar="KEY=VALUE", help="A broker setting; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")]

app = typer.Typer(
    no_args_is_help=True,
    help="Look at a data directory, check it, mend it. No broker may run on it.\n\n"
    "Example: `ottla storage check ./data`",
)


@app.command("info")
def info(directory: Directory, config: ServerConfig = None, option: Options = None, as_json: AsJson = False) -> None:
    """Show whose directory it is, and each partition's size and offsets, as a start would find them.

    Of a compacted partition: up to where it was cleaned, how much of what can be cleaned is dirty, and what keeps it
    from being cleaned.

    Nothing is changed. Apache Kafka's directories can be looked at, too. Exit codes: 0; 2 if there is no directory, or
    a broker runs on it.

    Example: `ottla storage info ./data`
    """
    survey = _survey(directory, config, option, deep=False)
    if as_json:
        print_json(_head(survey) | {"partitions": _rows(survey), "notes": [_told(each) for each in _notes(survey)]})
        return
    print(_heading(survey))
    print_rows(_rows(survey), _COLUMNS, as_json=False, none="It holds no partition.")
    for each in survey.logs:
        if each.dirt is not None and each.dirt.held_back is not None:
            print(printable(f"{each.tp} is not cleaned, or not to its end: {each.dirt.held_back}."))
    _print_told(_notes(survey))
    wrong = sum(each.kind.is_fault for each in survey.told)
    if wrong:
        print(f"{counted(wrong, 'thing')} not as it should be: `ottla storage check {directory}` says what.")


@app.command("check")
def check(directory: Directory, config: ServerConfig = None, option: Options = None, as_json: AsJson = False) -> None:
    """Read every byte, and say what is wrong: file, position, offsets, cause, and what a start would make of it.

    Nothing is changed. Apache Kafka's directories can be checked, too. Exit codes: 0 nothing is wrong; 1 something is;
    2 nothing was checked, because there is no directory, a broker runs on it, or the command line is wrong.

    Example: `ottla storage check ./data --json`
    """
    survey = _survey(directory, config, option, deep=True)
    if as_json:
        print_json(_report(survey))
    else:
        print(_heading(survey))
        _print_told(survey.told)
        print(_verdict(survey))
    raise typer.Exit(0 if survey.is_sound else _WRONG)


@app.command("repair")
def repair(
    directory: Directory,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    config: ServerConfig = None,
    option: Options = None,
    as_json: AsJson = False,
) -> None:
    """Check, say what would be done, ask, and do what a start would do: no more, and with its own rules.

    Files that can be made again are made again, and torn ends are cut. Lost records do not come back: put the files
    back from a copy before you repair. Take a copy of the directory first. Apache Kafka's directories are not repaired:
    starting Apache Kafka does that. Exit codes: 0 nothing is wrong any more; 1 something is left, or nothing was done;
    2 as for check.

    Example: `ottla storage repair ./data --dry-run`
    """
    if as_json and not (yes or dry_run):
        raise typer.BadParameter("--json cannot ask: add --yes or --dry-run")
    with _opened(directory, config, option, is_writable=True) as (disk, settings):
        before = _look(disk, settings, deep=True)
        if not as_json:
            print(_heading(before))
            _print_told(before.told)
            _print_changes(before)
        if dry_run or not before.has_repair:
            _end(before, before, as_json=as_json)
        if not yes and not _confirmed(directory, before):
            say("Nothing was changed.")
            raise typer.Exit(_WRONG)
        _do(disk, settings, before)
        after = _look(disk, settings, deep=True)
        if not as_json:
            print("Repaired.")
            _print_told(after.told)
        _end(before, after, as_json=as_json)


def _do(disk: Disk, settings: BrokerConfig, before: Survey) -> None:
    import random

    from ottla.base.clock import SystemClock
    from ottla.broker.directory.repair import repair as mend

    try:
        mend(disk, settings, SystemClock(), random.SystemRandom(), before.misfits)
    except StorageError as fault:
        say(f"ottla: the repair is not done: {fault}")
        raise typer.Exit(_WRONG) from None


def _confirmed(directory: Path, before: Survey) -> bool:
    say(_verdict(before))
    try:
        return typer.confirm(f"Do this to {directory}?", err=True)
    except typer.Abort:
        return False


def _end(before: Survey, after: Survey, *, as_json: bool) -> None:
    """Say how it stands, and end the command."""
    if as_json:
        print_json(_report(before) | {"left": [_told(each) for each in after.told]})
    else:
        print(_verdict(after))
    raise typer.Exit(0 if after.is_sound else _WRONG)


# ---- looking


def _survey(directory: Path, config: Path | None, options: Sequence[str] | None, *, deep: bool) -> Survey:
    with _opened(directory, config, options, is_writable=False) as (disk, settings):
        return _look(disk, settings, deep=deep)


def _look(disk: Disk, settings: BrokerConfig, *, deep: bool) -> Survey:
    from ottla.base.clock import SystemClock
    from ottla.broker.directory.survey import survey

    try:
        with _progress() as progress:
            return survey(disk, settings, SystemClock(), deep=deep, progress=progress)
    except StorageError as fault:
        say(f"ottla: {fault}")
        raise typer.Exit(_NOT_LOOKED_AT) from None


@contextmanager
def _opened(
    directory: Path, config: Path | None, options: Sequence[str] | None, *, is_writable: bool
) -> Iterator[tuple[Disk, BrokerConfig]]:
    """The directory, locked, and the settings of its broker."""
    from ottla.broker.directory.reading import ReadOnlyDisk
    from ottla.broker.storage import DirectoryDisk

    reading = ReadOnlyDisk(directory)
    disk = DirectoryDisk(directory) if is_writable else reading
    try:
        reading.must_be_there()
        disk.lock()
        settings = _settings(reading, directory, config, list(options or ()))
    except (StorageError, ConfigError) as fault:
        disk.unlock()
        say(f"ottla: {fault}")
        raise typer.Exit(_NOT_LOOKED_AT) from None
    try:
        yield disk, settings
    finally:
        disk.unlock()


def _settings(disk: Disk, directory: Path, config: Path | None, options: list[str]) -> BrokerConfig:
    """What the broker would be started with. Without another word it is the node that the directory belongs to."""
    from ottla.broker.metadata.properties import read_properties
    from ottla.broker.process import configure
    from ottla.broker.runtime.manifest import sealed_properties

    settings = configure(config_file=config, data_dir=directory, options=options)
    if "node.id" in settings.given:
        return settings
    properties = read_properties(disk, sealed_properties(disk.own_files()))
    own = [] if properties is None else [f"node.id={properties.node_id}"]
    return configure(config_file=config, data_dir=directory, options=[*own, *options])


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on a terminal, gone when it is done; nothing where there is none."""
    from ottla.broker.directory.survey import quiet

    if not sys.stderr.isatty():
        yield quiet
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def advance(done_bytes: int, total_bytes: int, what: str) -> None:
            bar.update(task, completed=done_bytes, total=total_bytes or None, description=what)

        yield advance


# ---- saying


def _heading(survey: Survey) -> str:
    head = [f"{survey.path}: {survey.owner.value}'s"]
    if survey.properties is not None:
        head.append(f"cluster {survey.properties.cluster_id}, node {survey.properties.node_id}")
    if survey.metadata_version is not None:
        head.append(f"metadata.version {survey.metadata_version}")
    head.append("stopped in order" if survey.was_stopped else "not stopped in order")
    size_bytes = sum(each.size_bytes for each in survey.logs)
    head.append(f"{counted(len(survey.logs), 'partition')}, {size_bytes:,} bytes")
    return "; ".join(head)


def _verdict(survey: Survey) -> str:
    from ottla.broker.told import Kind

    faults = [each for each in survey.told if each.kind.is_fault]
    if not faults:
        return "Nothing is wrong."
    mended = sum(each.kind.is_mended for each in faults) if survey.has_repair else 0
    found = f"{counted(len(faults), 'thing')} wrong"
    if survey.owner.value != "Ottla":
        return f"{found}. {survey.owner.value} mends what it can when it starts; `ottla storage repair` does not."
    if survey.is_refused:
        return f"{found}. The broker does not start until that is mended by hand. A repair cannot do it."
    by_hand = sum(each.kind is Kind.IN_THE_WAY for each in faults)
    left = len(faults) - mended - by_hand
    parts = [f"a repair, or a start, mends {mended}"] if mended else []
    parts += [f"{by_hand} has to be moved away by hand"] if by_hand else []
    parts += [f"{left} cannot be mended without a copy of the files"] if left else []
    lost = any(each.goes_on_without_records for each in faults)
    warning = " Records are gone then: if there is a copy of these files, put it back first." if lost and mended else ""
    return f"{found}: {'; '.join(parts)}.{warning}"


def _notes(survey: Survey) -> list[Told]:
    """What is not wrong, but good to know."""
    return [each for each in survey.told if not each.kind.is_fault]


def _print_told(told: Sequence[Told]) -> None:
    for each in told:
        print(printable(f"  {each.kind.value}: {each.text}"))


def _print_changes(survey: Survey) -> None:
    if not survey.has_repair:
        return
    print("A repair would:")
    for change in survey.changes:
        print(printable(f"  {_sentence(change)}"))
    for folder, name in survey.misfits:
        print(printable(f"  make {folder}/{name} again"))


def _sentence(change: Change) -> str:
    from ottla.broker.directory.overlay import Action

    match change.action:
        case Action.MADE:
            return f"make {change.path} ({change.after_bytes} bytes)"
        case Action.REMOVED:
            return f"remove {change.path} ({change.before_bytes} bytes)"
        case Action.CUT:
            return f"cut {change.path} from {change.before_bytes} to {change.after_bytes} bytes"
        case Action.APPENDED:
            return f"append to {change.path}, from {change.before_bytes} to {change.after_bytes} bytes"
        case Action.REPLACED:
            return f"write {change.path} again ({change.after_bytes} bytes)"
        case Action.RENAMED:
            return f"rename {change.path} to {change.name}"


def _rows(survey: Survey) -> list[dict[str, object]]:
    return [
        {
            "partition": str(each.tp),
            "segments": each.segments,
            "size_bytes": each.size_bytes,
            "start_offset": each.scope.extent.first_offset,
            "end_offset": each.scope.extent.end_offset,
            "recovery_point": each.recovery_point,
            "open_transactions": each.open_transactions,
            "lost_offsets": sum(hole.end_offset - hole.first_offset for hole in each.scope.holes),
            "cleaned_offset": None if each.dirt is None else each.dirt.cleaned_offset,
            "dirty_bytes": None if each.dirt is None else each.dirt.dirty_bytes,
            "dirty_percent": None if each.dirt is None else each.dirt.dirty_percent,
            "cleaning_is_held_back": None if each.dirt is None else each.dirt.held_back,
        }
        for each in survey.logs
    ]


def _head(survey: Survey) -> dict[str, object]:
    properties = survey.properties
    return {
        "directory": survey.path,
        "owner": survey.owner.value,
        "cluster_id": None if properties is None else properties.cluster_id,
        "node_id": None if properties is None else properties.node_id,
        "metadata_version": survey.metadata_version,
        "stopped_in_order": survey.was_stopped,
    }


def _report(survey: Survey) -> dict[str, object]:
    return _head(survey) | {
        "sound": survey.is_sound,
        "starts": not survey.is_refused,
        "found": [_told(each) for each in survey.told],
        "changes": [
            {
                "file": each.path,
                "change": each.action.value,
                "from_bytes": each.before_bytes,
                "to_bytes": each.after_bytes,
            }
            for each in (survey.changes if survey.has_repair else ())
        ],
    }


def _told(told: Told) -> dict[str, object]:
    return {
        "kind": told.kind.value,
        "place": told.place,
        "position": told.position,
        "first_offset": told.first_offset,
        "end_offset": told.end_offset,
        "mended_by_repair": told.kind.is_mended,
        "goes_on_without_records": told.goes_on_without_records,
        "text": told.text,
    }
