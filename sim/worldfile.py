"""What a failing world leaves: a file with its seed, plan, anomalies and history; and one with its facts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ottla.base.errors import OttlaError
from ottla.testing.history import History as Facts
from sim.fields import FieldError, count, document, field, list_of, one_of, optional, seconds, text
from sim.history import table
from sim.report import commit
from sim.world import ALL, FAULTS_S, Kind, Plan, Verdict

#: Where these files go, in the current directory.
FOLDER = Path("sim-failures")
#: Another form of the file, or another meaning of a plan, has another version.
_VERSION = 1
_OTHERWISE = "The seed runs the world again, too (make sim SEED=93 KIND=plain)"


class WorldFileError(OttlaError):
    """The file is not there, or is none of ours."""


class Again(NamedTuple):
    """What to run."""

    seed: int
    kind: Kind
    plan: Plan
    #: The commit of the code that made the file (`sim.report.commit`). Files of before do not say it.
    commit: str | None = None


def save(verdict: Verdict, folder: Path = FOLDER) -> Path:
    """Write the file of a world, and beside it what the checkers were told (`.jsonl`). Returns its path."""
    plan = verdict.plan
    path = folder / f"{verdict.kind.value}-{verdict.seed}.json"
    again = f"make sim SEED={verdict.seed} KIND={verdict.kind.value}" if plan == ALL else f"make sim WORLD={path}"
    content = {
        "version": _VERSION,
        "again": again,
        "commit": commit(),
        "seed": verdict.seed,
        "kind": verdict.kind.value,
        "only": None if plan.only is None else sorted(plan.only),
        "faults_s": plan.faults_s,
        "absent": sorted(plan.absent),
        "anomalies": [{"name": anomaly.name, "text": anomaly.what} for anomaly in verdict.anomalies],
        "history": table(verdict.history.events).splitlines(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    Facts(events=verdict.facts).write(path.with_suffix(".jsonl"))
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def load(path: Path) -> Again:
    """What a file says is to be run. WorldFileError when it cannot be read."""
    try:
        content = document(path)
    except FileNotFoundError:
        raise WorldFileError(
            f"there is no world file {path}: a failing world leaves one in {FOLDER}/, and its seed runs it again, too "
            "(make sim SEED=93 KIND=plain)"
        ) from None
    except OSError as fault:
        raise WorldFileError(f"the world file {path} cannot be read: {fault.strerror}") from None
    except FieldError as wrong:
        raise WorldFileError(f"{path} is no world file: {wrong}. {_OTHERWISE}") from None
    if not isinstance(content, dict) or "version" not in content:
        raise WorldFileError(f"{path} is no world file: it has no version. {_OTHERWISE}")
    if type(content["version"]) is not int or content["version"] != _VERSION:
        raise WorldFileError(
            f"{path} is a world file of version {content['version']!r}, and this simulator reads version {_VERSION}: "
            "run it with the commit that wrote it"
        )
    return _again(path, content)


def _again(path: Path, content: Mapping[str, Any]) -> Again:
    try:
        only = field(content, "only", optional(list_of(count)))
        faults_s = field(content, "faults_s", seconds)
        if faults_s > FAULTS_S:
            raise FieldError(f"'faults_s' has to be {FAULTS_S:.0f} at most: no world has faults for longer")
        absent = field(content, "absent", list_of(text))
        plan = Plan(None if only is None else frozenset(only), faults_s, frozenset(absent))
        made_by = field(content, "commit", text) if "commit" in content else None
        return Again(field(content, "seed", count), field(content, "kind", one_of(Kind)), plan, made_by)
    except FieldError as wrong:
        raise WorldFileError(f"{path} is no world file: {wrong}. {_OTHERWISE}") from None
