"""Runs worlds in several processes, and says what came of each."""

import gc
import logging
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import NamedTuple

from sim.history import table
from sim.shrink import shrink
from sim.world import ALL, Kind, Plan, Verdict, World
from sim.worldfile import save

#: Most lines of a world's table that are printed.
_LINES_OF_TABLE = 400


class Summary(NamedTuple):
    """What the command tells about a world."""

    seed: int
    kind: Kind
    names: tuple[str, ...]
    text: str
    virtual_s: float
    counts: Counter[str]


def one(seed: int, kind: Kind, plan: Plan = ALL) -> Summary:
    """Run one world."""
    return _summary(_run(seed, kind, plan))


def shrunk(seed: int, kind: Kind, plan: Plan = ALL) -> str:
    """Run a world that fails again, make it smaller, write its file; what to tell of it."""
    verdict = _run(seed, kind, plan)
    if not verdict.anomalies:
        return f"the {kind.value} world {seed} did not fail again: that is a fault of the simulator"
    steps: list[str] = []
    smallest = shrink(verdict, told=steps.append)
    path = save(smallest)
    counted = f"{len(smallest.faults)} of {len(verdict.faults)} faults, {len(smallest.history.events)} events"
    lines = [f"--- shrunk: {counted} ({'; '.join(steps) or 'nothing can go'})", _summary(smallest).text]
    return "\n".join([*lines, f"--- again, shrunk: make sim WORLD={path}"])


def _run(seed: int, kind: Kind, plan: Plan) -> Verdict:
    try:
        return World(seed, kind, plan).run()
    except Exception as error:
        error.add_note(f"in the {kind.value} world {seed}")
        raise


def _summary(verdict: Verdict) -> Summary:
    lines = []
    if verdict.anomalies:
        lines = [f"{anomaly.name}: {anomaly.text}" for anomaly in verdict.anomalies[:10]]
        around = [text for anomaly in verdict.anomalies[:3] for text in anomaly.around]
        rows = table(verdict.history.events, around=around).splitlines()
        lines += ["", *rows[:_LINES_OF_TABLE]]
        if len(rows) > _LINES_OF_TABLE:
            lines.append(f"... {len(rows) - _LINES_OF_TABLE} more")
    names = tuple(anomaly.name for anomaly in verdict.anomalies)
    return Summary(verdict.seed, verdict.kind, names, "\n".join(lines), verdict.virtual_s, verdict.counts)


def worlds(first: int, count: int | None, kind: Kind | None) -> Iterator[tuple[int, Kind]]:
    """Seeds from `first` on; of all kinds by turns, if none is given; for ever, if no count is given."""
    kinds = list(Kind)
    seed = first
    while count is None or seed < first + count:
        yield seed, kind or kinds[seed % len(kinds)]
        seed += 1


def run_all(wanted: Iterator[tuple[int, Kind]], jobs: int, until: float | None) -> Iterator[Summary]:
    """The summary of each world, in the order in which they end. After `until` no more worlds are begun."""
    if jobs == 1:
        _begin()
        for seed, kind in wanted:
            if until is not None and time.monotonic() > until:
                return
            yield one(seed, kind)
        return
    with ProcessPoolExecutor(jobs, initializer=_begin) as pool:
        running: set[Future[Summary]] = set()
        more = True
        while more or running:
            while more and len(running) < jobs * 3:
                following = next(wanted, None)
                more = following is not None and (until is None or time.monotonic() < until)
                if more and following is not None:
                    running.add(pool.submit(one, *following))
            if running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    yield each.result()


def _begin() -> None:
    logging.disable(logging.ERROR)  # the clients would log every fault of the world
    gc.collect()
    gc.freeze()
