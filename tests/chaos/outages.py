"""When the faults of a chaos test come: drawn from a seed alone, printed, and drawn again from the same seed.

A seed says which victim is hit, in which order, and after how many steps of the test (acknowledged records, ended
transactions). It does not say at which microsecond: processes and threads run as the machine lets them.

OTTLA_CHAOS_SEED=7 runs every test that takes a seed with this one instead of its usual ones.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

SEED_VARIABLE = "OTTLA_CHAOS_SEED"


def chaos_seeds(*usual: int, slow: Sequence[int] = ()) -> pytest.MarkDecorator:
    """Gives a test its argument `seed`: the usual ones and, in the long run, the slow ones; or that of the variable."""
    chosen = os.environ.get(SEED_VARIABLE)
    if chosen is not None:
        return pytest.mark.parametrize("seed", [int(chosen)])
    return pytest.mark.parametrize("seed", [*usual, *(pytest.param(seed, marks=pytest.mark.slow) for seed in slow)])


class Fault(NamedTuple):
    """Who is hit, and after how many steps since the fault before."""

    victim: str
    after_steps: int


def drawn(seed: int, count: int, most_steps: int, victims: Sequence[str] = ("broker",)) -> list[Fault]:
    """The faults of a test. They are printed with the way to repeat them; pytest shows that when the test fails."""
    draw = random.Random(seed)
    faults = [Fault(draw.choice(victims), draw.randint(1, most_steps)) for _ in range(count)]
    plan = ", ".join(f"{fault.victim} after {fault.after_steps}" for fault in faults)
    print(f"faults, with the steps before each: {plan} (to repeat them: {SEED_VARIABLE}={seed})")
    return faults


class Outages:
    """Carries the faults out in a thread of its own, each when its steps are done."""

    def __init__(self, faults: Sequence[Fault], carry_out: Callable[[str], object]) -> None:
        self._faults = list(faults)
        self._carry_out = carry_out
        self._left = [fault.after_steps for fault in faults]
        self._due = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run)
        self._failed: BaseException | None = None
        #: Set when the last fault is over, and when one could not be carried out.
        self.done = threading.Event()

    def step(self) -> None:
        """One more step is done, so perhaps a fault is due. Call it from one thread only."""
        if self._left:
            self._left[0] -= 1
            if self._left[0] == 0:
                self._left.pop(0)
                self._due.release()

    def __enter__(self) -> Outages:
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        for _ in self._left:  # the test has ended early: its thread must not wait for steps that do not come
            self._due.release()
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            for fault in self._faults:
                self._due.acquire()
                self._carry_out(fault.victim)
        except BaseException as failed:  # noqa: BLE001  # raised again where the test leaves its block
            self._failed = failed
        finally:
            self.done.set()
