"""`ottla pipeline adopt`: what a query's checkpoint says, and how it changes hands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import CommandError, Json, print_json, say

if TYPE_CHECKING:
    from ottla.spark.adoption import Checkpoint, Source
    from ottla.spark.plan import Offsets

_BACKUP = "-before-it-was-handed-back"


def adopt(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint's directory. A remote one: copy it first.")],
    back: Annotated[bool, typer.Option("--back", help='Hand it to Spark\'s own connector, format("kafka").')] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --back: do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Say what happens when a query of Spark's own connector goes on with format("ottla"), or hand it back.

    Our source reads the other one's checkpoint as it is: nothing has to be changed. The way back rewrites one file.

    Example: `ottla pipeline adopt ./checkpoints/words`, and `ottla pipeline adopt ./checkpoints/words --back`
    """
    from ottla.spark.adoption import Owner, read_checkpoint

    found = read_checkpoint(checkpoint)
    wanted = Owner.OTTLA if back else Owner.KAFKA
    is_there = any(each.owner is wanted for each in found.sources)
    if as_json:
        print_json(_as_json(found))
    else:
        print("\n".join([*_said(found), *(_goes_on(found, back=back) if is_there else ())]))
    if not is_there:
        whose = "Ottla's" if back else "of Spark's own Kafka connector"
        raise CommandError(f"none of its sources is {whose}: there is nothing to hand over")
    if back:
        _hand_back(found, yes=yes)
    elif found.committed < 0:
        raise CommandError(
            "its first micro-batch is not committed, and only the connector that planned it knows where it begins. "
            'Start the query once more with format("kafka"), until that is done'
        )


def _said(found: Checkpoint) -> list[str]:
    lines = [f"Micro-batch {found.planned} is the newest; {_committed(found)}."]
    for number, source in enumerate(found.sources):
        before = found.committed_sources[number].end if number < len(found.committed_sources) else {}
        lines += [f"Source {number + 1} ({source.owner.value}):", *_offsets(source, before, found)]
    return lines


def _goes_on(found: Checkpoint, *, back: bool) -> list[str]:
    """What a query does that is started with the other format."""
    name = 'format("kafka")' if back else 'format("ottla")'
    lines = []
    if found.planned == found.committed:
        lines.append(f"Started with {name}, the query goes on there. Nothing is read twice or left out.")
        if not back:
            lines.append(
                "Unless a topic was deleted and made again meanwhile: these offsets have no ids of topics. Where one "
                "lies behind an open transaction, the query says so and stops; with "
                "kafka.isolation.level=read_uncommitted it goes on."
            )
    elif not back and found.committed >= 0:
        lines.append(
            f"Started with {name}, the query reads micro-batch {found.planned} again. What the sink before has written "
            "of it is written once more, as that sink would have done."
        )
    return lines


def _committed(found: Checkpoint) -> str:
    if found.planned == found.committed:
        return "it is committed"
    return f"{found.committed} is the newest that is committed" if found.committed >= 0 else "none is committed"


def _offsets(source: Source, before: Offsets, found: Checkpoint) -> list[str]:
    if found.planned == found.committed:
        return [f"  {tp} is read up to {offset}" for tp, offset in sorted(source.end.items())]
    return [f"  {tp} from {before.get(tp, 'its beginning')} to {offset}" for tp, offset in sorted(source.end.items())]


def _as_json(found: Checkpoint) -> dict[str, object]:
    from ottla.spark.plan import offsets_to_json

    return {
        "planned": found.planned,
        "committed": found.committed,
        "sources": [{"owner": each.owner.value, "offsets": offsets_to_json(each.end)} for each in found.sources],
    }


def _hand_back(found: Checkpoint, *, yes: bool) -> None:
    from ottla.spark.adoption import as_kafkas

    if found.planned != found.committed:
        raise CommandError(
            f'micro-batch {found.planned} is not committed: start the query once more with format("ottla") '
            "until it is, and stop it between two micro-batches"
        )
    file = found.newest
    backup = file.with_name(file.name + _BACKUP)
    if not yes:
        typer.confirm(f"Write {file} anew, and keep the old one as {backup.name}?", abort=True)
    text = file.read_text()
    new = file.with_name(f".{file.name}.new")
    new.write_text(as_kafkas(text))
    backup.write_text(text)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # of the old content: Hadoop would refuse the new one
    new.replace(file)
    say(f'{file} has the offsets of Spark\'s own connector now. Start the query with format("kafka").')
