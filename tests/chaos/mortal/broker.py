"""`ottla.testing.Broker` whose process dies at a durable step of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.testing import Broker
from ottla.testing.broker import BrokerError
from tests.chaos.mortal.steps import Death


class MortalBroker(Broker):
    """See the module. Each life has a file for its steps, in `traces`."""

    def __init__(self, config: Mapping[str, object], traces: Path, data_dir: Path) -> None:
        super().__init__(config, data_dir=data_dir, start_timeout_s=120.0)
        self._traces = traces
        self.lives = 0
        self._death: Death | None = None

    def _program(self) -> Sequence[str]:
        return (sys.executable, "-m", "tests.chaos.mortal.process", str(self._trace), json.dumps(self._death))

    @property
    def _trace(self) -> Path:
        return self._traces / f"life-{self.lives}"

    def begin_life(self, death: Death | None) -> bool:
        """Start; it will die there. False when it has died so while it started. BrokerError when it did not start."""
        self.lives += 1
        self._death = death
        try:
            self.start()
        except BrokerError:
            if self.has_died:
                return False
            raise
        return True

    @property
    def has_died(self) -> bool:
        """Whether the present life has come to its death."""
        said = self._trace.read_text().splitlines() if self._trace.exists() else []
        return bool(said) and said[-1].startswith("died ")

    def wait_for_death(self, timeout_s: float) -> bool:
        """Whether it dies in time. It is gone then."""
        if self._process is not None:
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return False
            self.kill()
        return self.has_died

    def steps(self) -> Counter[str]:
        """How often the present life has come to each step."""
        return Counter(line for line in self._trace.read_text().splitlines() if not line.startswith("died "))
