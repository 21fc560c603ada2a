"""The process of `ottla.testing.Broker`: the broker of `ottla serve`, whose clock and disk its test governs.

The first two arguments are the milliseconds that are skipped from the start, and the seconds that the disk takes
longer. Each line `advance MS` or `slow SECONDS` on stdin changes one of them; `done` on stdout is the answer.
"""

import asyncio
import os
import sys

from ottla.broker.app import BrokerApp
from ottla.broker.config import BrokerConfig
from ottla.broker.process import main
from ottla.testing.clock import DONE, SkippingClock
from ottla.testing.slow_disk import SlowDisk


def run(argv: list[str]) -> int:
    """Run the broker; the process's exit code."""
    return main(argv[2:], lambda config: _governed(config, int(argv[0]), float(argv[1])))


def _governed(config: BrokerConfig, skipped_ms: int, delay_s: float) -> BrokerApp:
    clock, disk = SkippingClock(skipped_ms), SlowDisk(config.data_dir, delay_s)
    app = BrokerApp(config, clock, disk)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _Control(app, clock, disk).hear)
    return app


class _Control:
    """Carries out what comes on stdin, until it ends."""

    def __init__(self, app: BrokerApp, clock: SkippingClock, disk: SlowDisk) -> None:
        self._app = app
        self._clock = clock
        self._disk = disk
        self._said = b""

    def hear(self) -> None:
        heard = os.read(sys.stdin.fileno(), 4096)
        if not heard:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        *lines, self._said = (self._said + heard).split(b"\n")
        for line in lines:
            self._carry_out(*line.decode().split())

    def _carry_out(self, what: str, number: str) -> None:
        if what == "advance":
            self._clock.advance(int(number))
            if self._app.node is not None:
                self._app.node.timers.fire()
        else:
            self._disk.delay_s = float(number)
        print(DONE, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
