"""The kill matrix of pipelines (SPEC S2): {slots, whole batches} × {our broker, Apache Kafka} × every step of the sink.

In a cell one query meets all deaths, one after the other: workers, the driver with all of Spark, the broker. Then a
consumer that is not ours finds every word of every line, once, and no transaction is open. With `atomicity=batch` it
finds each micro-batch whole or not at all also between the deaths. The controls show that these looks can fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.mortal_brokers import mortal, need_jars
from tests.chaos.pipelines import Death, Pipeline

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("java")]

_TASK_POINTS = ("source.read", "sink.write-begun", "sink.mid-write", "sink.flushed")
_DRIVER_POINTS = {
    "slot": (
        "sink.claimed",
        "sink.before-decision",
        "sink.after-decision",
        "sink.between-slots",
        "sink.after-slots",
        "sink.after-done",
    ),
    "batch": ("sink.claimed", "sink.mid-copy", "sink.before-decision", "sink.after-decision"),
}
_BROKER_POINTS = {
    "slot": ("sink.mid-write", "sink.after-decision", "sink.between-slots"),
    "batch": ("sink.mid-write", "sink.mid-copy", "sink.after-decision"),
}


def deaths(atomicity: str, *, short: bool) -> list[Death]:
    """All deaths of a cell; in the short form those of the driver and the broker in the middle of its commit."""
    if short:
        *_, last = _DRIVER_POINTS[atomicity]
        return [
            Death("driver", "sink.before-decision"),
            Death("broker", _BROKER_POINTS[atomicity][1]),
            Death("driver", last),
        ]
    return [
        *(Death("worker", point) for point in _TASK_POINTS),
        *(Death("driver", point) for point in (*_TASK_POINTS[2:], *_DRIVER_POINTS[atomicity])),
        *(Death("broker", point) for point in _BROKER_POINTS[atomicity]),
    ]


@pytest.mark.parametrize("kind", ["ottla", pytest.param("apache", marks=pytest.mark.slow)])
@pytest.mark.parametrize("atomicity", ["batch", pytest.param("slot", marks=pytest.mark.slow)])
def test_s2_every_word_is_there_once_whoever_dies_at_whichever_step(
    kind: str, atomicity: str, tmp_path: Path, pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> None:
    need_jars(kind, request)
    short = "not slow" in pytestconfig.getoption("-m")
    with mortal(kind, tmp_path) as broker:
        pipeline = Pipeline(broker, tmp_path, atomicity=atomicity)
        for death in pipeline.live(*deaths(atomicity, short=short)):
            found = pipeline.words()
            assert not found - pipeline.expected, f"after the death of the {death.victim} at {death.point}"
            if atomicity == "batch":
                assert pipeline.torn() == [], f"after the death of the {death.victim} at {death.point}"
        assert pipeline.words() == pipeline.expected
        assert pipeline.open_transactions() == []


@pytest.mark.slow
def test_s2_negative_control_at_least_once_is_seen_to_repeat(tmp_path: Path) -> None:
    with mortal("ottla", tmp_path) as broker:
        pipeline = Pipeline(broker, tmp_path, atomicity="slot", semantics="at-least-once")
        for _ in pipeline.live(Death("driver", "sink.flushed"), Death("driver", "sink.flushed")):
            pass
        words = pipeline.words()
        assert set(words) == set(pipeline.expected), "nothing is lost"
        assert words - pipeline.expected, "the check could not fail: nothing was written twice"


@pytest.mark.slow
def test_s2_negative_control_with_slots_a_batch_is_seen_half(tmp_path: Path) -> None:
    with mortal("ottla", tmp_path) as broker:
        pipeline = Pipeline(broker, tmp_path, atomicity="slot")
        torn = [pipeline.torn() for _ in pipeline.live(Death("driver", "sink.between-slots"))]
        assert torn == [[0]], "the check could not fail: the first slot of the first batch is to be seen alone"
        assert pipeline.torn() == []
        assert pipeline.words() == pipeline.expected
