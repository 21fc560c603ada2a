"""`make sim`: runs worlds from seeds, and prints each one that shows an anomaly.

Environment: SEED (the first seed; without it one is drawn), SEEDS (how many worlds; 500), HOURS (how long, instead of
SEEDS), KIND (only worlds of one kind), JOBS (how many processes; one for each core). A world with an anomaly prints its
table of events, and the command that runs it again.
"""

import gc
import logging
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import NamedTuple

from sim.history import table
from sim.world import Kind, World

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


def one(seed: int, kind: Kind) -> Summary:
    """Run one world."""
    try:
        verdict = World(seed, kind).run()
    except Exception as error:
        error.add_note(f"in the {kind.value} world {seed}")
        raise
    lines = []
    if verdict.anomalies:
        lines = [f"{anomaly.name}: {anomaly.text}" for anomaly in verdict.anomalies[:10]]
        around = [text for anomaly in verdict.anomalies[:3] for text in anomaly.around]
        rows = table(verdict.history.events, around=around).splitlines()
        lines += ["", *rows[:_LINES_OF_TABLE]]
        if len(rows) > _LINES_OF_TABLE:
            lines.append(f"... {len(rows) - _LINES_OF_TABLE} more")
    names = tuple(anomaly.name for anomaly in verdict.anomalies)
    return Summary(seed, kind, names, "\n".join(lines), verdict.virtual_s, verdict.counts)


def _worlds(first: int, count: int | None, kind: Kind | None) -> Iterator[tuple[int, Kind]]:
    kinds = list(Kind)
    seed = first
    while count is None or seed < first + count:
        yield seed, kind or kinds[seed % len(kinds)]
        seed += 1


def _number(name: str, default: float | None) -> float | None:
    text = os.environ.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise SystemExit(f"{name} has to be a number, not {text!r}") from None


def _begin() -> None:
    logging.disable(logging.ERROR)  # the clients would log every fault of the world
    gc.collect()
    gc.freeze()


def main() -> int:
    """The command. Returns 1 if there was an anomaly."""
    hours, seeds = _number("HOURS", None), _number("SEEDS", None)
    given = _number("SEED", None)
    first = random.SystemRandom().randrange(10**9) if given is None else int(given)
    count = None if hours else int(seeds or (1 if given is not None else 500))
    try:
        kind = Kind(os.environ["KIND"]) if os.environ.get("KIND") else None
    except ValueError:
        raise SystemExit(f"KIND is one of {', '.join(each.value for each in Kind)}") from None
    jobs = int(_number("JOBS", os.cpu_count() or 1) or 1)
    print(f"seeds from {first} on, {f'{count} worlds' if count else f'{hours} hours'}, {jobs} processes", flush=True)
    begun = time.monotonic()
    until = None if hours is None else begun + hours * 3_600
    totals: Counter[str] = Counter()
    failed: list[Summary] = []
    worlds, virtual_s = 0, 0.0
    for summary in _run_all(_worlds(first, count, kind), jobs, until):
        worlds += 1
        virtual_s += summary.virtual_s
        totals += summary.counts
        if summary.names:
            failed.append(summary)
            _tell(summary)
        if worlds % 200 == 0:
            print(f"{worlds} worlds, {worlds / (time.monotonic() - begun):.1f} a second", flush=True)
    took_s = max(time.monotonic() - begun, 1e-9)
    speed = f"{worlds / took_s:.1f} a second, {virtual_s / took_s:.0f} virtual seconds a second"
    print(f"\n{worlds} worlds in {took_s:.0f} s ({speed})")
    print(", ".join(f"{what}: {number}" for what, number in sorted(totals.items())))
    print(f"{len(failed)} with anomalies: {', '.join(f'{s.kind.value} {s.seed}' for s in failed) or 'none'}")
    return 1 if failed else 0


def _tell(summary: Summary) -> None:
    names = ", ".join(f"{name} x{number}" for name, number in Counter(summary.names).items())
    print(f"\n=== {summary.kind.value} world {summary.seed}: {names}")
    print(summary.text)
    print(f"=== again: make sim SEED={summary.seed} KIND={summary.kind.value}\n", flush=True)


def _run_all(worlds: Iterator[tuple[int, Kind]], jobs: int, until: float | None) -> Iterator[Summary]:
    """The summary of each world, in the order in which they end. After `until` no more worlds are begun."""
    if jobs == 1:
        _begin()
        for seed, kind in worlds:
            if until is not None and time.monotonic() > until:
                return
            yield one(seed, kind)
        return
    with ProcessPoolExecutor(jobs, initializer=_begin) as pool:
        running: set[Future[Summary]] = set()
        more = True
        while more or running:
            while more and len(running) < jobs * 3:
                following = next(worlds, None)
                more = following is not None and (until is None or time.monotonic() < until)
                if more and following is not None:
                    running.add(pool.submit(one, *following))
            if running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    yield each.result()


if __name__ == "__main__":
    sys.exit(main())
