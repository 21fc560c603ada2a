"""Any order of everything that happens to a log: what was promised stays, and nothing is there twice (SPEC P3, P7, T4).

Each history follows from its number (`tests/log/histories`). A failing one says what happened. `make models` runs
thousands, and OTTLA_LOG_HISTORIES=17-18 one.
"""

import os

import pytest

from sim.mutants.log import bugs
from tests.log.histories.history import History

_HERE = 100
_CHUNK = 20
#: The first history that shows the bug, where few do.
_SHOWN_BY = {
    "nothing-is-written-again": 72,
    "retired-files-are-not-synced": 89,
    "the-snapshot-goes-unsynced": 1850,
}


def _numbers() -> list[range]:
    first, _, last = os.environ.get("OTTLA_LOG_HISTORIES", f"0-{_HERE}").rpartition("-")
    begin, end = int(first or 0), int(last)
    return [range(at, min(at + _CHUNK, end)) for at in range(begin, end, _CHUNK)]


@pytest.mark.parametrize(
    "how",
    [{}, {"owes_snapshots": True}, {"in_parts": True}],
    ids=["few-producers", "many-producers", "large-batches"],
)
@pytest.mark.parametrize("numbers", _numbers(), ids=lambda numbers: f"{numbers.start}-{numbers.stop}")
def test_p3_p7_whatever_happens_a_log_keeps_what_it_has_promised(numbers: range, how: dict[str, bool]) -> None:
    for number in numbers:
        history = History(number, **how)
        try:
            history.run()
        except BaseException as fault:
            fault.add_note("\n".join((f"history {number}", *history.did)))
            raise


@pytest.mark.parametrize("name", bugs())
def test_the_histories_find_the_bugs_that_others_have_found(name: str) -> None:
    first = _SHOWN_BY.get(name, 0)
    with bugs()[name]:
        for number in range(first, first + 40):
            try:
                History(number).run()
            except Exception:  # noqa: BLE001 - whatever it shows as
                return
    raise AssertionError("no history has shown it")
