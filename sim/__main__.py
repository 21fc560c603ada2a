"""`make sim`: runs worlds from seeds, and shows each one that has an anomaly.

Environment: SEED (the first seed; without it one is drawn), SEEDS (how many worlds; 500), HOURS (how long, instead of
SEEDS), KIND (only worlds of one kind), JOBS (how many processes; one for each core), REPORT (a JSON file for the
figures; a campaign that was stopped goes on from it), STOP (1: stop at the first world with an anomaly), WORLD (run
the world of this file again, and nothing else).
A world with an anomaly prints its table of events, and the command that runs it again, and leaves a file in
`sim-failures`. The first few are shrunk to what is needed for the anomaly.
"""

import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from sim.campaign import campaign, tell
from sim.report import ReportError, commit, is_exact
from sim.running import one
from sim.worldfile import WorldFileError, load

#: What says which worlds a campaign runs, and how. A world of a file has all of it in the file.
_OF_A_CAMPAIGN = ("SEED", "SEEDS", "HOURS", "KIND", "JOBS", "REPORT", "STOP")
_HOW = "there are no arguments, the environment says which worlds: SEED=93 SEEDS=100 python -m sim"


def main(arguments: Sequence[str] = ()) -> int:
    """The command. Returns 1 if there was an anomaly, 2 if it was asked for what cannot be, 130 for a world of a file
    that was stopped."""
    if arguments:
        is_help = arguments[0] in ("-h", "--help")
        print(__doc__ if is_help else f"{arguments[0]}: {_HOW}\n\n{__doc__}", file=None if is_help else sys.stderr)
        return 0 if is_help else 2
    signal.signal(signal.SIGTERM, _terminated)
    try:
        path = os.environ.get("WORLD")
        return run_again(Path(path)) if path else campaign(os.environ)
    except (WorldFileError, ReportError, ValueError) as fault:
        print(fault, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 128 + signal.SIGINT


def _terminated(number: int, frame: object) -> None:
    """End at once, and leave no process. A report has what it had when the last progress was told."""
    for process in multiprocessing.active_children():
        process.kill()
    os.write(2, b"stopped\n")
    os._exit(128 + number)


def run_again(path: Path) -> int:
    """Run the world of a file again. WorldFileError when it names users or faults that its world does not have."""
    given = [name for name in _OF_A_CAMPAIGN if os.environ.get(name)]
    if given:
        raise ValueError(f"WORLD runs the one world of its file: leave out {' and '.join(given)}, or WORLD")
    again = load(path)
    logging.disable(logging.ERROR)
    summary = one(again.seed, again.kind, again.plan)
    if not summary.names and summary.strange:
        made_by = "" if again.commit in (None, commit()) else f" ({again.commit}, and this is {commit()})"
        raise WorldFileError(
            f"{path} names what its world does not have: {', '.join(summary.strange)}. "
            f"Was it changed by hand, or made by other code{made_by}?"
        )
    if not summary.names:
        print(f"{path}: no anomaly. {why_not(again.commit, commit())}")
        return 0
    tell(summary, f"make sim WORLD={path}")
    return 1


def why_not(then: str | None, now: str) -> str:
    """What it means that the world of a file has no anomaly: `then` the file was made, and `now` are the commits."""
    if then == now and is_exact(now):
        return f"The same code ({now}) has found one. Who has not changed the file has found a fault of the simulator."
    code = "" if then in (None, now) else f"It was found by the code of commit {then}, and this is {now}. "
    return f"{code}Either it is mended, or the code has changed so much that this is another world."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
