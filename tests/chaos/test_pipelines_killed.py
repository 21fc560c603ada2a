"""The kill matrix of pipelines (SPEC S2): {slots, shared, two-phase, whole} × {our broker, Apache Kafka} × every step.

Shared are slots of several partitions, whole is `atomicity=batch`. In a cell one query meets all deaths, one after the
other: tasks, workers, the driver with all of Spark, the broker. Then a consumer that is not ours finds every word of
every line, once, and no transaction is open. With whole batches it finds each micro-batch whole or not at all also
between the deaths. The controls show that these looks can fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.mortal_brokers import mortal, need_jars
from tests.chaos.pipelines import DRIVER_POINTS, TASK_POINTS, Cell, Death, Pipeline
from tests.client.two_phase_journeys import SETTINGS

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("java")]

_LINES = 5_000
_KINDS = ("ottla", pytest.param("apache", marks=pytest.mark.slow))
SLOTS, TWO_PHASE, WHOLE = Cell("slot", "off"), Cell("slot", "required"), Cell("batch", "off")
#: Partitions of some six records in a micro-batch, so that a few share a task and a slot, and there are two of these.
SHARED = SLOTS._replace(partitions=8, min_records=20)


def deaths(atomicity: str, *, short: bool) -> list[Death]:
    """All deaths of a cell; in the short form those of the driver and the broker in the middle of its commit."""
    of_driver = DRIVER_POINTS[atomicity]
    if short:
        broker = Death("broker", "sink.mid-copy" if atomicity == "batch" else "sink.after-decision")
        return [Death("driver", "sink.before-decision"), broker, Death("driver", of_driver[-1])]
    return [
        *(Death(victim, point) for victim in ("task", "worker") for point in TASK_POINTS),
        *(Death(victim, point) for victim in ("driver", "broker") for point in (*TASK_POINTS, *of_driver)),
    ]


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    "cell",
    [WHOLE, *(pytest.param(cell, marks=pytest.mark.slow) for cell in (SLOTS, SHARED, TWO_PHASE))],
    ids=["whole", "slots", "shared", "two-phase"],
)
def test_s2_every_word_is_there_once_whoever_dies_at_whichever_step(
    kind: str, cell: Cell, tmp_path: Path, pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> None:
    need_jars(kind, request)
    short = "not slow" in pytestconfig.getoption("-m")
    with mortal(kind, tmp_path, SETTINGS) as broker:
        pipeline = cell.pipeline(broker, tmp_path, lines=2_000 if short else _LINES)
        for death in pipeline.live(*deaths(cell.atomicity, short=short)):
            found = pipeline.words()
            assert not found - pipeline.expected, f"after the death of the {death.victim} at {death.point}"
            if cell is WHOLE:
                assert pipeline.torn() == [], f"after the death of the {death.victim} at {death.point}"
        assert pipeline.words() == pipeline.expected
        assert pipeline.open_transactions() == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", _KINDS)
def test_s2_negative_control_at_least_once_is_seen_to_repeat(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    need_jars(kind, request)
    with mortal(kind, tmp_path) as broker:
        pipeline = Pipeline(broker, tmp_path, atomicity="slot", semantics="at-least-once")
        for _ in pipeline.live(Death("driver", "sink.flushed"), Death("driver", "sink.flushed")):
            pass
        words = pipeline.words()
        assert set(words) == set(pipeline.expected), "nothing is lost"
        assert words - pipeline.expected, "the check could not fail: nothing was written twice"


@pytest.mark.slow
@pytest.mark.parametrize("kind", _KINDS)
def test_s2_negative_control_with_slots_a_batch_is_seen_half(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    need_jars(kind, request)
    with mortal(kind, tmp_path) as broker:
        pipeline = Pipeline(broker, tmp_path, atomicity="slot")
        torn = [pipeline.torn() for _ in pipeline.live(Death("driver", "sink.between-slots"))]
        assert torn == [[0]], "the check could not fail: the first slot of the first batch is to be seen alone"
        assert pipeline.torn() == []
        assert pipeline.words() == pipeline.expected
