"""Entry point of the `ottla` command.

`ottla serve` must answer within half a second, so this module imports nothing and hands that one command straight to
the broker; every other command, and `ottla serve --help`, goes through `ottla.cli.app`.
"""

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (sys.argv's by default); returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["serve"] and not {"--help", "-h"}.intersection(given):
            gc.disable()  # a tenth of the start; the broker has it on again before it says that it is ready
            from ottla.broker.process import main as serve

            return serve(given[1:])
        from ottla.cli.app import run

        return run(given)
    except KeyboardInterrupt:  # while it was imported
        return 130
    finally:
        gc.enable()
