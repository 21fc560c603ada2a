"""The checkers can fail: each bug that is put in is found, and under its name."""

from __future__ import annotations

import pytest

from sim.mutants import mutants
from sim.world import Plan, World

pytestmark = pytest.mark.usefixtures("quiet")

#: Faults for a third of the usual time: each of these bugs shows soon.
_SHORT = Plan(faults_s=30.0)
#: A bug that was put in is found within so many worlds, from the first one on that is said to show it.
_MOST_SEEDS = 500


@pytest.mark.parametrize("name", mutants())
def test_a_bug_that_is_put_in_is_caught(name: str) -> None:
    mutant = mutants()[name]
    with mutant.bug:
        for seed in range(mutant.first_seed, mutant.first_seed + _MOST_SEEDS):
            found = {anomaly.name for anomaly in World(seed, mutant.kind, _SHORT).run().anomalies}
            if found & mutant.caught_as:
                return
    expected = " or ".join(sorted(mutant.caught_as))
    pytest.fail(f"{name}: no {expected} in {_MOST_SEEDS} worlds from {mutant.first_seed} on")
