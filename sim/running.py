"""Runs worlds in several processes, and says what came of each.

A world may fail in every way: have an anomaly, raise, never end, or take its process with it. The others go on.
"""

import ctypes
import gc
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from threading import Thread
from traceback import format_exc
from typing import NamedTuple

from sim import limits
from sim.deletions import DELETER
from sim.figures import figures
from sim.history import table
from sim.shrink import shrink
from sim.world import ALL, Kind, Plan, Verdict, World
from sim.worldfile import save

#: Most lines of a world's table that are printed.
_LINES_OF_TABLE = 400
#: A process begins with all that is imported here; and with the bugs that are put in, when a test puts in some.
_FORK = get_context("fork")
#: glibc's: gives free memory back to the machine. Another C library has none.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


class Summary(NamedTuple):
    """What the command tells about a world."""

    seed: int
    kind: Kind
    names: tuple[str, ...]
    text: str
    figures: Counter[str]
    #: The file that a world with an anomaly has left.
    file: str | None = None
    #: The causes of its known anomalies.
    known: tuple[str, ...] = ()
    #: What the plan names, and the world does not have.
    strange: tuple[str, ...] = ()
    #: It ran to its end, with all its users and faults: it can be shrunk.
    is_whole: bool = False


def one(seed: int, kind: Kind, plan: Plan = ALL) -> Summary:
    """Run one world. A whole one with an anomaly leaves its file."""
    begun_s = time.process_time()
    try:
        with limits.limited():
            verdict = World(seed, kind, plan).run()
        took_s = time.process_time() - begun_s
        file, why_none = _saved(verdict) if verdict.anomalies and plan == ALL else (None, "")
        return _summary(verdict, figures(verdict, took_s), file, why_none)
    except limits.NeverEndsError:
        text = f"the world has taken {limits.LONGEST_S:.0f} s of a processor, and does not end:\n{format_exc()}"
        return _broken(seed, kind, "never-ends", text)
    except Exception:  # noqa: BLE001 - a fault of the simulation or of a checker: told with the seed
        return _broken(seed, kind, "broken-world", format_exc())


def _saved(verdict: Verdict) -> tuple[str | None, str]:
    """Its file; or None, and a line that says why: the anomaly has to be told all the same."""
    try:
        return str(save(verdict)), ""
    except OSError as fault:
        return None, f"--- its file cannot be written: {fault}"


def _one_of_many(seed: int, kind: Kind) -> Summary:
    """Run one world, and give back what it took.

    A world is one big cycle, made while nothing is collected. What it leaves free lies between what stays in use, and
    the next world finds room elsewhere: a process that has run thousands of them would take a gigabyte.
    """
    summary = one(seed, kind)
    gc.collect()
    if _TRIM is not None:
        _TRIM(0)
    return summary


def shrunk(seed: int, kind: Kind, plan: Plan = ALL) -> str:
    """Run a world that fails again, make it smaller, write its file; what to tell of it."""
    try:
        return _shrunk(seed, kind, plan)
    except (limits.NeverEndsError, Exception):  # noqa: BLE001 - as in `one`: the other worlds are shrunk all the same
        return f"the {kind.value} world {seed} could not be shrunk:\n{format_exc()}"


def _shrunk(seed: int, kind: Kind, plan: Plan) -> str:
    with limits.limited():
        verdict = World(seed, kind, plan).run()
    if not verdict.anomalies:
        return f"the {kind.value} world {seed} did not fail again: that is a fault of the simulator"
    steps: list[str] = []
    smallest = shrink(verdict, told=steps.append)
    path, why_none = _saved(smallest)
    counted = f"{len(smallest.faults)} of {len(verdict.faults)} faults, {len(smallest.history.events)} events"
    lines = [f"--- shrunk: {counted} ({'; '.join(steps) or 'nothing can go'})", _text(smallest)]
    return "\n".join([*lines, why_none or f"--- again, shrunk: make sim WORLD={path}"])


def _broken(seed: int, kind: Kind, name: str, text: str) -> Summary:
    return Summary(seed, kind, (name,), f"{name}: {text}", Counter(worlds=1, anomalies=1))


def _summary(verdict: Verdict, found: Counter[str], file: str | None, why_none: str) -> Summary:
    names = tuple(anomaly.name for anomaly in verdict.anomalies)
    strange = [f"user {name}" for name in sorted(verdict.plan.absent - {DELETER, *verdict.users})]
    strange += [f"fault {number}" for number in sorted((verdict.plan.only or set()) - verdict.faults.keys())]
    text = f"{_text(verdict)}\n{why_none}" if why_none else _text(verdict)
    is_whole = verdict.plan == ALL
    return Summary(verdict.seed, verdict.kind, names, text, found, file, tuple(verdict.known), tuple(strange), is_whole)


def _text(verdict: Verdict) -> str:
    """The anomalies of a world, and the part of its history that is about them; nothing if it has none."""
    if not verdict.anomalies:
        return ""
    lines = [f"{anomaly.name}: {anomaly.what}" for anomaly in verdict.anomalies[:10]]
    around = [text for anomaly in verdict.anomalies[:3] for text in anomaly.about]
    lines += ["", table(verdict.history.events, around=around, most=_LINES_OF_TABLE)]
    return "\n".join(lines)


def worlds(first: int, count: int | None, kind: Kind | None) -> Iterator[tuple[int, Kind]]:
    """Seeds from `first` on; of all kinds by turns, if none is given; for ever, if no count is given."""
    kinds = list(Kind)
    seed = first
    while count is None or seed < first + count:
        yield seed, kind or kinds[seed % len(kinds)]
        seed += 1


def run_all(wanted: Iterator[tuple[int, Kind]], jobs: int, until: float | None) -> Iterator[Summary]:
    """The summary of each world, in the order in which they were wanted. After `until` no more worlds are begun."""
    if jobs == 1:
        disabled = logging.root.manager.disable
        _begin()
        try:
            for seed, kind in wanted:
                if until is not None and time.monotonic() > until:
                    return
                yield _one_of_many(seed, kind)
        finally:  # this process goes on, and what it has to say is said again
            logging.disable(disabled)
            gc.unfreeze()
        return
    asked: list[tuple[int, Kind]] = []
    done: dict[tuple[int, Kind], Summary] = {}
    while True:
        try:
            yield from _in_a_pool(wanted, jobs, until, asked, done)
            return
        except BrokenProcessPool:  # one of these has taken its process with it: each in a process of its own says which
            for each in [each for each in asked if each not in done]:
                done[each] = _alone(*each)


def _in_a_pool(
    wanted: Iterator[tuple[int, Kind]],
    jobs: int,
    until: float | None,
    asked: list[tuple[int, Kind]],
    done: dict[tuple[int, Kind], Summary],
) -> Iterator[Summary]:
    """Run what is wanted. `asked` are the worlds that were begun and not yet told of, `done` those that have ended."""
    with _pool(jobs) as pool:
        running: dict[Future[Summary], tuple[int, Kind]] = {}
        more = True
        while True:
            while asked and asked[0] in done:
                yield done.pop(asked.pop(0))
            while more and len(running) < jobs * 3:
                following = next(wanted, None)
                more = following is not None and (until is None or time.monotonic() < until)
                if more and following is not None:
                    asked.append(following)
                    running[pool.submit(_one_of_many, *following)] = following
            if not running:
                return
            for each in wait(running, return_when=FIRST_COMPLETED).done:
                done[running.pop(each)] = each.result()


def _alone(seed: int, kind: Kind) -> Summary:
    """Run one world in a process of its own, which may die."""
    with _pool(1) as pool:
        try:
            return pool.submit(one, seed, kind).result()
        except BrokenProcessPool:
            return _broken(seed, kind, "died", "the process that ran the world has died")


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, _FORK, _begin_in_a_pool, (os.getpid(),))


def _begin_in_a_pool(parent: int) -> None:
    _begin()
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, however that ended. It would wait for worlds for ever."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _begin() -> None:
    logging.disable(logging.ERROR)  # the clients would log every fault of the world
    gc.collect()
    gc.freeze()
