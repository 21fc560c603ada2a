"""The kill matrix of pipelines (SPEC S2): the driver comes back later than the time-out of the sink's transactions.

Without two-phase commit the broker has aborted by then what was open, also a slot that was decided. A query that gives
the same rows again completes its batch. One that does not stops, and names the batch; with two-phase commit, or with
`atomicity=batch`, it goes on, for nothing that is decided can be lost.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.chaos.mortal_brokers import Mortal, mortal, need_jars
from tests.chaos.pipelines import DRIVER_POINTS, TASK_POINTS, Cell, Death, Pipeline, tried
from tests.client.two_phase_journeys import SETTINGS

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.usefixtures("java")]

_TIMEOUT_MS = 20_000
_LINES = 1_500
_KINDS = pytest.mark.parametrize("kind", ["ottla", "apache"])


SLOTS = Cell("slot", "off")
RANDOM_SLOTS = SLOTS._replace(plan="random")
TWO_PHASE = Cell("slot", "required", "random")
WHOLE = Cell("batch", "off", "random")
#: Steps at which a slot of the batch is open, and has no end with two-phase commit.
_OPEN = ("sink.flushed", "sink.before-decision", "sink.after-decision", "sink.between-slots")


def _pipeline(cell: Cell, broker: Mortal, folder: Path) -> Pipeline:
    return cell.pipeline(broker, folder, lines=_LINES, timeout_ms=_TIMEOUT_MS)


def _points(cell: Cell) -> list[str]:
    """Every step; but with other rows in other slots, a batch that is half there cannot be completed (see below)."""
    return [
        point
        for point in (*TASK_POINTS, *DRIVER_POINTS[cell.atomicity])
        if cell is not RANDOM_SLOTS or point != "sink.between-slots"
    ]


@_KINDS
@pytest.mark.parametrize(
    "cell", [SLOTS, RANDOM_SLOTS, TWO_PHASE, WHOLE], ids=["slots", "random-slots", "two-phase", "whole"]
)
def test_s2_a_late_restart_is_exact(kind: str, cell: Cell, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    need_jars(kind, request)
    with mortal(kind, tmp_path, SETTINGS) as broker:
        pipeline = _pipeline(cell, broker, tmp_path)
        for death in pipeline.live(*(Death("driver", point) for point in _points(cell))):
            pipeline.stay_away(_TIMEOUT_MS)
            # the control: what was open has run out of its time, or has none
            if cell is not TWO_PHASE or death.point in _OPEN:
                assert bool(pipeline.open_transactions()) == (cell is TWO_PHASE), death.point
            assert not pipeline.words() - pipeline.expected, death.point
        assert pipeline.words() == pipeline.expected
        assert pipeline.open_transactions() == []


def _dies_and_stays_away(pipeline: Pipeline, point: str) -> None:
    driver = pipeline.launch(Death("driver", point))
    try:
        driver.wait_at_the_step()
    finally:
        driver.kill()
    pipeline.stay_away(_TIMEOUT_MS)


def _ends_with(pipeline: Pipeline, error: str) -> None:
    driver = pipeline.launch()
    try:
        assert driver.end() != 0
        if not driver.has_said(error):
            driver.fail(f"the driver has not ended with {error}")
    finally:
        driver.kill()


@_KINDS
def test_s2_a_late_restart_with_other_rows_stops_in_doubt(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    need_jars(kind, request)
    with mortal(kind, tmp_path, SETTINGS) as broker:
        pipeline = _pipeline(RANDOM_SLOTS, broker, tmp_path)
        tried(partial(_dies_and_stays_away, pipeline, "sink.between-slots"))
        tried(partial(_ends_with, pipeline, "InDoubtError"))
        assert not pipeline.words() - pipeline.expected
        assert pipeline.torn() == [0]
        assert pipeline.open_transactions() == []


def _stands_still(pipeline: Pipeline, point: str, error: str | None) -> None:
    driver = pipeline.launch(Death("nobody", point))
    try:
        driver.wait_at_the_step()
        driver.stop()
        pipeline.stay_away(_TIMEOUT_MS)
        driver.go_on()
        driver.wake()
        if (driver.end() != 0) != (error is not None) or (error is not None and not driver.has_said(error)):
            driver.fail(f"the driver should have ended with {error}")
    finally:
        driver.kill()


@_KINDS
@pytest.mark.parametrize(
    ("cell", "point", "error"),
    [
        (SLOTS, "sink.before-decision", "SlotsLostError"),
        (WHOLE, "sink.mid-copy", "SinkFencedError"),
        (TWO_PHASE, "sink.before-decision", None),
    ],
    ids=["slots", "whole", "two-phase"],
)
def test_s2_a_driver_that_was_stopped_for_too_long_says_so(
    kind: str, cell: Cell, point: str, error: str | None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    need_jars(kind, request)
    with mortal(kind, tmp_path, SETTINGS) as broker:
        pipeline = _pipeline(cell, broker, tmp_path)
        tried(partial(_stands_still, pipeline, point, error))
        assert not pipeline.words() - pipeline.expected
        tried(pipeline.finish)
        assert pipeline.words() == pipeline.expected
        assert pipeline.open_transactions() == []
