"""The process of `MortalBroker`: `ottla serve`, whose steps are counted.

python -m tests.chaos.mortal.process TRACE [DEATH as JSON, or null] OPTIONS OF ottla serve…
"""

import json
import sys
from pathlib import Path

from ottla.broker.process import main
from tests.chaos.mortal.steps import Death, Moment, Steps


def run(argv: list[str]) -> int:
    """Run the broker; the process's exit code, if it comes to an end."""
    trace, planned, *options = argv
    found = json.loads(planned)
    death = None if found is None else Death(found[0], found[1], Moment(found[2]))
    data_dir = Path(options[options.index("--data-dir") + 1])
    Steps(data_dir, Path(trace), death).install()
    return main(options)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
