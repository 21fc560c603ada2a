"""A campaign: many worlds, told while they run, and added up in the end.

With a report it can be stopped and started again: it goes on behind the last world that the report has, with the code
of the same commit.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from ottla.base.words import counted
from sim import figures
from sim.report import Asked, Failure, Known, Report, ReportError, commit, is_exact, load
from sim.running import Summary, run_all, shrunk, worlds
from sim.world import Kind

#: How many failing worlds are shrunk: each takes as long as a hundred others.
_SHRUNK = 3
#: How often, in seconds, the campaign says how far it is, and writes its report.
_TOLD_EVERY_S = 10.0
_ORDINARY_COUNT = 500
#: Most processes for each core. All of them are begun at once, and each takes memory: thousands would fill the machine.
_JOBS_A_CORE = 8


def campaign(environment: Mapping[str, str]) -> int:
    """Run worlds as the environment says (see `sim.__main__`). Returns 1 if one had an anomaly.

    ValueError or ReportError when the environment asks for what cannot be.
    """
    path = Path(environment["REPORT"]) if environment.get("REPORT") else None
    hours = _positive(environment, "HOURS")
    jobs = _jobs(environment)
    stops = _yes(environment, "STOP")
    report = _begun(path, environment)
    found = report.total["anomalies"]
    failed: list[Summary] = []
    if not report.is_complete:
        print(f"{report.asked}; {counted(jobs, 'process', 'processes')}; commit {report.commit}", flush=True)
        if report.done:
            print(f"{report.done:,} of them {'is' if report.done == 1 else 'are'} done already ({path})", flush=True)
        failed = _run(report, jobs, hours, path, stops=stops)
        found = report.total["anomalies"]
    if not report.total["worlds"]:
        raise ValueError("no world was run: this was over before the first one ended. Give more HOURS, or SEEDS")
    print(f"\n{figures.speed(report.total, report.seconds)}\n{figures.line(report.total)}\n")
    print(figures.table(report.kinds))
    if report.known:
        print(f"\n{counted(len(report.known), 'world')} with anomalies of known causes (sim/known.py):")
    for each in report.known:
        print(f"  {each.kind} {each.seed}: {_counts(each.causes)}")
    print(f"\n{figures.with_anomalies(found)}{':' if found else ''}")
    for failure in report.failures:
        names = _counts(failure.anomalies)
        print(f"  {failure.kind} {failure.seed}: {names}; again: {failure.again}; file: {failure.file or 'none'}")
    _shrink(failed)
    return 1 if found else 0


def _begun(path: Path | None, environment: Mapping[str, str]) -> Report:
    """The report of the campaign that was begun; or that of a new one."""
    asked = _asked(environment)
    begun = load(path) if path is not None else None
    if begun is None:
        new = Report(asked, commit())
        if path is not None:
            new.save(path)  # now, and not after hours: it may be that nothing can be written there
        return new
    given = [name for name in ("SEED", "SEEDS", "KIND") if environment.get(name)]
    same = begun.asked._replace(first=asked.first) if "SEED" not in given else begun.asked
    wanted = asked if "SEEDS" in given else asked._replace(most=same.most)
    wanted = wanted if "KIND" in given else wanted._replace(kind=same.kind)
    if wanted != same:
        raise ReportError(f"{path} is the report of another campaign: {begun.asked}. Name another file, or remove it")
    if not begun.is_complete and not is_exact(begun.commit):
        raise ReportError(
            f"{path} was begun with code that no commit has ({begun.commit}), and nobody knows whether it is the same "
            "now: commit all changes, and begin a new campaign: name another file, or remove this one"
        )
    if not begun.is_complete and begun.commit != commit():
        raise ReportError(
            f"{path} was begun with the code of commit {begun.commit}, and this is {commit()}: "
            "go on with that commit, name another file, or remove it"
        )
    return begun


def _run(report: Report, jobs: int, hours: float | None, path: Path | None, *, stops: bool) -> list[Summary]:
    """Run the worlds that the report does not have yet; with `stops` no more behind the first that has an anomaly.

    Returns those that have one.
    """
    begun_s = told_s = time.monotonic()
    before_s = report.seconds
    until_s = None if hours is None else begun_s + hours * 3_600
    wanted = islice(worlds(*report.asked), report.done, None)
    failed: list[Summary] = []
    try:
        for summary in run_all(wanted, jobs, until_s):
            report.count(summary.kind, summary.figures)
            if summary.known:
                report.known.append(Known(summary.kind.value, summary.seed, list(summary.known)))
            if summary.names:
                failed.append(summary)
                again = f"make sim SEED={summary.seed} KIND={summary.kind.value}"
                names = list(summary.names)
                report.failures.append(Failure(summary.kind.value, summary.seed, names, again, summary.file))
                tell(summary, again)
            report.seconds = before_s + time.monotonic() - begun_s
            if summary.names and stops:
                print(f"stopped by STOP: {_how_to_go_on(report, path)}")
                break
            now_s = time.monotonic()
            if now_s > told_s + _TOLD_EVERY_S:
                told_s = now_s
                print(f"{now_s - begun_s:7.0f} s: {figures.line(report.total)}", flush=True)
                if path is not None:
                    report.save(path)
    except KeyboardInterrupt:
        print(f"stopped; {_how_to_go_on(report, path)}", file=sys.stderr)
    if path is not None:
        report.save(path)
    return failed


def _how_to_go_on(report: Report, path: Path | None) -> str:
    if not is_exact(report.commit):
        return f"it cannot go on, because no commit has this code ({report.commit})"
    return "the same command goes on" if path else "with REPORT=file it could go on"


def _shrink(failed: Sequence[Summary]) -> None:
    """Make the first failing worlds smaller, and tell what is left of each. All else is told by now."""
    try:
        for summary in failed[:_SHRUNK]:
            if summary.is_whole:
                print(shrunk(summary.seed, summary.kind), flush=True)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)


def tell(summary: Summary, again: str) -> None:
    """Print a world that has an anomaly."""
    print(f"\n=== {summary.kind.value} world {summary.seed}: {_counts(summary.names)}")
    print(summary.text)
    print(f"=== again: {again}\n", flush=True)


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{name} x{number}" for name, number in Counter(names).items())


def _asked(environment: Mapping[str, str]) -> Asked:
    given, count = _whole(environment, "SEED"), _count(environment, "SEEDS")
    if given is not None and given < 0:
        raise ValueError(f"SEED has to be a whole number, 0 or more, not {environment['SEED']!r}")
    first = random.SystemRandom().randrange(10**9) if given is None else given
    if count is None and not environment.get("HOURS"):
        count = _ORDINARY_COUNT if given is None else 1
    return Asked(first, count, _kind(environment))


def _kind(environment: Mapping[str, str]) -> Kind | None:
    text = environment.get("KIND")
    try:
        return Kind(text) if text else None
    except ValueError:
        raise ValueError(f"KIND is one of {', '.join(each.value for each in Kind)}, not {text!r}") from None


def _whole(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    try:
        return int(text) if text else None
    except ValueError:
        raise ValueError(f"{name} has to be a whole number, such as {name}=93, not {text!r}") from None


def _count(environment: Mapping[str, str], name: str) -> int | None:
    number = _whole(environment, name)
    if number is not None and number < 1:
        raise ValueError(f"{name} has to be a whole number above 0, not {environment[name]!r}")
    return number


def _yes(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "")
    if text not in ("", "0", "1"):
        raise ValueError(f"{name} has to be 1 (yes) or 0 (no), not {text!r}")
    return text == "1"


def _jobs(environment: Mapping[str, str]) -> int:
    """How many processes run the worlds."""
    cores = os.cpu_count() or 1
    jobs = _count(environment, "JOBS") or cores
    most = cores * _JOBS_A_CORE
    if jobs > most:
        raise ValueError(f"JOBS has to be {most} at most, {_JOBS_A_CORE} for each core of this machine, not {jobs}")
    return jobs


def _positive(environment: Mapping[str, str], name: str) -> float | None:
    text = environment.get(name, "")
    try:
        number = float(text) if text else None
    except ValueError:
        number = 0.0
    if number is not None and not 0 < number < float("inf"):
        raise ValueError(f"{name} has to be a number above 0, not {text!r}")
    return number
