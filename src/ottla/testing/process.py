"""The process of `ottla.testing.Broker`: the broker of `ottla serve`, whose clock its test moves on.

The first argument is how many milliseconds are skipped from the start. Each line `advance MS` on stdin skips more; the
answer on stdout is `advanced`.
"""

import asyncio
import os
import sys

from ottla.broker.app import BrokerApp
from ottla.broker.process import main
from ottla.testing.clock import ADVANCED, SkippingClock


def run(argv: list[str]) -> int:
    """Run the broker; the process's exit code."""
    clock = SkippingClock(int(argv[0]))
    return main(argv[1:], clock, lambda app: _Control(app, clock).begin())


class _Control:
    """Carries out what comes on stdin, until it ends."""

    def __init__(self, app: BrokerApp, clock: SkippingClock) -> None:
        self._app = app
        self._clock = clock
        self._said = b""

    def begin(self) -> None:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._hear)

    def _hear(self) -> None:
        heard = os.read(sys.stdin.fileno(), 4096)
        if not heard:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        *lines, self._said = (self._said + heard).split(b"\n")
        for line in lines:
            self._carry_out(line.decode())

    def _carry_out(self, line: str) -> None:
        _, delta_ms = line.split()
        self._clock.advance(int(delta_ms))
        if self._app.node is not None:
            self._app.node.timers.fire()
        print(ADVANCED, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
