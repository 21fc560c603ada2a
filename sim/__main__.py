"""`make sim`: runs worlds from seeds, and shows each one that has an anomaly.

Environment: SEED (the first seed; without it one is drawn), SEEDS (how many worlds; 500), HOURS (how long, instead of
SEEDS), KIND (only worlds of one kind), JOBS (how many processes; one for each core), WORLD (run the world of this file
again, and nothing else). A world with an anomaly prints its table of events, and the command that runs it again. The
first few are shrunk to what is needed for the anomaly, and leave a file in `sim-failures`.
"""

import logging
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from sim.running import Summary, one, run_all, shrunk, worlds
from sim.world import Kind
from sim.worldfile import WorldFileError, load

#: How many failing worlds are shrunk: each takes as long as a hundred others.
_SHRUNK = 3


def main() -> int:
    """The command. Returns 1 if there was an anomaly, 2 if it was asked for what cannot be."""
    try:
        path = os.environ.get("WORLD")
        return _again(Path(path)) if path else _seeds()
    except (WorldFileError, ValueError) as fault:
        print(fault, file=sys.stderr)
        return 2


def _again(path: Path) -> int:
    """Run the world of a file again."""
    again = load(path)
    logging.disable(logging.ERROR)
    summary = one(*again)
    if not summary.names:
        print(f"{path}: no anomaly. Either it is mended, or the code has changed so much that this is another world.")
        return 0
    _tell(summary, f"make sim WORLD={path}")
    return 1


def _seeds() -> int:
    hours, seeds, given = _positive("HOURS"), _positive("SEEDS"), _whole("SEED")
    first = random.SystemRandom().randrange(10**9) if given is None else given
    count = None if hours else int(seeds or (1 if given is not None else 500))
    kind, jobs = _kind(), int(_positive("JOBS") or os.cpu_count() or 1)
    print(f"seeds from {first} on, {f'{count} worlds' if count else f'{hours} hours'}, {jobs} processes", flush=True)
    begun = time.monotonic()
    until = None if hours is None else begun + hours * 3_600
    totals: Counter[str] = Counter()
    failed: list[Summary] = []
    ran, virtual_s = 0, 0.0
    for summary in run_all(worlds(first, count, kind), jobs, until):
        ran += 1
        virtual_s += summary.virtual_s
        totals += summary.counts
        if summary.names:
            failed.append(summary)
            _tell(summary, f"make sim SEED={summary.seed} KIND={summary.kind.value}")
            if len(failed) <= _SHRUNK:
                print(shrunk(summary.seed, summary.kind), flush=True)
        if ran % 200 == 0:
            print(f"{ran} worlds, {ran / (time.monotonic() - begun):.1f} a second", flush=True)
    took_s = max(time.monotonic() - begun, 1e-9)
    speed = f"{ran / took_s:.1f} a second, {virtual_s / took_s:.0f} virtual seconds a second"
    print(f"\n{ran} worlds in {took_s:.0f} s ({speed}), {virtual_s / 3_600:.1f} virtual hours")
    print(", ".join(f"{what}: {number}" for what, number in sorted(totals.items())))
    print(f"{len(failed)} with anomalies: {', '.join(f'{s.kind.value} {s.seed}' for s in failed) or 'none'}")
    return 1 if failed else 0


def _tell(summary: Summary, again: str) -> None:
    names = ", ".join(f"{name} x{number}" for name, number in Counter(summary.names).items())
    print(f"\n=== {summary.kind.value} world {summary.seed}: {names}")
    print(summary.text)
    print(f"=== again: {again}\n", flush=True)


def _kind() -> Kind | None:
    text = os.environ.get("KIND")
    try:
        return Kind(text) if text else None
    except ValueError:
        raise ValueError(f"KIND is one of {', '.join(each.value for each in Kind)}, not {text!r}") from None


def _whole(name: str) -> int | None:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else None
    except ValueError:
        raise ValueError(f"{name} has to be a whole number, not {text!r}") from None


def _positive(name: str) -> float | None:
    text = os.environ.get(name, "")
    try:
        number = float(text) if text else None
    except ValueError:
        number = 0.0
    if number is not None and not 0 < number < float("inf"):
        raise ValueError(f"{name} has to be a number above 0, not {text!r}")
    return number


if __name__ == "__main__":
    sys.exit(main())
