"""The kill matrix of pipelines (SPEC S2, S6): a driver that was taken for dead wakes up beside the next one.

All of Spark's processes of a driver are stopped at a step. Another driver goes on from the same checkpoint. The first
one wakes up while the second one writes: it ends with an error that has a name, and nothing is there twice.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.chaos.mortal_brokers import mortal, need_jars
from tests.chaos.pipelines import Death, Driver, Pipeline, tried

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.usefixtures("java")]

#: Of the sink; the last is Spark's own, for two drivers that write one checkpoint.
_NAMED = ("SinkFencedError", "SlotsLostError", "CONCURRENT_STREAM_LOG_UPDATE")
_CELLS = [
    *(("slot", point) for point in ("mid-write", "before-decision", "after-decision", "between-slots", "after-done")),
    *(("batch", point) for point in ("mid-write", "mid-copy", "after-decision")),
]


def _ends_by_name(driver: Driver) -> None:
    assert driver.end() != 0
    if not driver.has_said(*_NAMED):
        driver.fail("the zombie has not said why it ends")


def _wake_beside_another(pipeline: Pipeline, point: str) -> None:
    zombie = pipeline.launch(Death("driver", point))
    other = None
    try:
        zombie.wait_at_the_step()
        zombie.stop()
        other = pipeline.launch()
        pipeline.goes_on(other)
        zombie.go_on()
        zombie.wake()
        _ends_by_name(zombie)
        # a zombie's task may abort what the other one has open: then that one stops, too, and says so
        code = other.ended_with()
        if code not in (None, 0) and not other.has_said(*_NAMED):
            other.fail("the other driver has not said why it ends")
    finally:
        zombie.kill()
        if other is not None:
            other.kill()


@pytest.mark.parametrize("kind", ["ottla", "apache"])
@pytest.mark.parametrize(("atomicity", "point"), _CELLS)
def test_s6_a_zombie_driver_writes_nothing_twice(
    kind: str, atomicity: str, point: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    need_jars(kind, request)
    with mortal(kind, tmp_path) as broker:
        pipeline = Pipeline(broker, tmp_path, atomicity=atomicity, lines=1_000)
        tried(partial(_wake_beside_another, pipeline, f"sink.{point}"))
        assert not pipeline.words() - pipeline.expected
        tried(pipeline.finish)
        assert pipeline.words() == pipeline.expected
        assert pipeline.open_transactions() == []


def test_s6_negative_control_at_least_once_a_zombie_driver_is_seen_to_repeat(tmp_path: Path) -> None:
    with mortal("ottla", tmp_path) as broker:
        pipeline = Pipeline(broker, tmp_path, atomicity="slot", semantics="at-least-once", lines=500)
        tried(partial(_wake_beside_another, pipeline, "sink.flushed"))
        tried(pipeline.finish)
        assert pipeline.words() - pipeline.expected, "the check could not fail: nothing was written twice"
