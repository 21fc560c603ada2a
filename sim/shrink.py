"""Shrinking: the smallest part of a world that still shows the anomaly.

A world is repeated with fewer faults, for a shorter time, without some of its users. What is left out changes nothing
of what the others draw, so most of the history stays as it was.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sim.limits import NeverEndsError, limited
from sim.world import Kind, Plan, Verdict, World

#: Most worlds that are run to shrink one.
MOST_WORLDS = 150
#: Shorter times for the faults, in seconds.
_TIMES_S = (5.0, 10.0, 15.0, 20.0, 30.0)


def shrink(verdict: Verdict, *, most: int = MOST_WORLDS, told: Callable[[str], object] = lambda text: None) -> Verdict:
    """The smallest world found within `most` runs that shows an anomaly of the same name as the first one here.

    `told` hears of each step that made it smaller.
    """
    search = _Search(verdict.seed, verdict.kind, verdict.anomalies[0].name, verdict, most)
    for faults_s in _TIMES_S:
        if faults_s < search.best.plan.faults_s and search.shows(search.best.plan._replace(faults_s=faults_s)):
            told(f"faults for {faults_s:.0f} s only")
            break
    for user in verdict.users:
        if search.shows(search.best.plan._replace(absent=search.best.plan.absent | {user})):
            told(f"without {user}")
    _fewer_faults(search, told)
    return search.best


@dataclass(slots=True)
class _Search:
    """The best world so far, and how many may still be run."""

    seed: int
    kind: Kind
    name: str
    best: Verdict
    left: int

    def shows(self, plan: Plan) -> bool:
        """Run the world by this plan. It becomes the best one if it shows the anomaly.

        One that raises, where the whole world does not, shows nothing. One that never ends was the last.
        """
        if self.left == 0:
            return False
        self.left -= 1
        try:
            with limited():
                verdict = World(self.seed, self.kind, plan).run()
        except NeverEndsError:
            self.left = 0
            return False
        except Exception:  # noqa: BLE001 - a fault of the simulation or of a checker, and not what is looked for
            return False
        if all(anomaly.name != self.name for anomaly in verdict.anomalies):
            return False
        self.best = verdict
        return True


def _fewer_faults(search: _Search, told: Callable[[str], object]) -> None:
    """Leave out ever smaller parts of the faults (delta debugging)."""
    faults = list(search.best.faults)
    parts = 1
    while faults and search.left:
        for part in _cut(faults, parts):
            rest = frozenset(faults) - frozenset(part)
            if search.shows(search.best.plan._replace(only=rest)):
                faults = [number for number in faults if number in rest]
                told(f"{len(faults)} faults")
                parts = max(parts - 1, 1)
                break
        else:
            if parts >= len(faults):
                return
            parts = min(parts * 2, len(faults))


def _cut(numbers: list[int], parts: int) -> Iterator[list[int]]:
    size = -(-len(numbers) // parts)
    for at in range(0, len(numbers), size):
        yield numbers[at : at + size]
