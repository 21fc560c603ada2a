"""The kill matrix of pipelines (SPEC S2, S4, S6) on a Spark cluster: a standalone master and two workers.

Executors, a whole machine and drivers die while one query runs, and attempts at one task run beside each other, on two
machines (`spark.speculation`). A consumer that is not ours finds every word once, and no transaction is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ottla import Admin
from tests.chaos.mortal_brokers import mortal, need_jars
from tests.chaos.pipelines import Death, Pipeline, tried
from tests.chaos.spark_cluster import SparkCluster

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.usefixtures("java")]

_CONF = ("spark.executor.memory=512m", "spark.executor.cores=1", "spark.driver.host=127.0.0.1")
_SPECULATION = (
    "spark.speculation=true",
    "spark.speculation.interval=200ms",
    "spark.speculation.quantile=0.5",
    "spark.speculation.minTaskRuntime=1s",
)
_DRIVER_POINTS = {
    "slot": ("sink.flushed", "sink.after-decision", "sink.between-slots"),
    "batch": ("sink.flushed", "sink.mid-copy", "sink.after-decision"),
}
_EXECUTOR_POINTS = ("sink.mid-write", "sink.flushed")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "cluster") as started:
        yield started


def _a_machine_dies(cluster: SparkCluster, pipeline: Pipeline, point: str) -> None:
    driver = pipeline.launch(Death("machine", point))
    host = None
    try:
        driver.wait_at_the_step()
        host = cluster.host_of(driver.pid_at_the_step())
        cluster.kill_worker(host)
        pipeline.goes_on(driver)  # on the other one
    finally:
        driver.kill()
        if host is not None:
            cluster.start_worker(host)


@pytest.mark.parametrize("kind", ["ottla", "apache"])
@pytest.mark.parametrize(("atomicity", "plan"), [("slot", "placed"), ("batch", "random")])
def test_s6_every_word_is_there_once_whatever_dies_on_a_cluster(
    kind: str, atomicity: str, plan: str, cluster: SparkCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    need_jars(kind, request)
    with mortal(kind, tmp_path) as broker:
        pipeline = Pipeline(
            broker, tmp_path, atomicity=atomicity, plan=plan, lines=1_500, master=cluster.master, conf=_CONF
        )
        tried(partial(_a_machine_dies, cluster, pipeline, "sink.mid-write"))
        deaths = [Death("executor", point) for point in _EXECUTOR_POINTS]
        deaths += [Death("driver", point) for point in _DRIVER_POINTS[atomicity]]
        for death in pipeline.live(*deaths):
            assert not pipeline.words() - pipeline.expected, f"after the death of the {death.victim} at {death.point}"
        assert pipeline.words() == pipeline.expected
        assert pipeline.open_transactions() == []


def _with_a_slow_task(pipeline: Pipeline) -> None:
    """The first attempt of a task waits when it has written all; another one takes its place."""
    driver = pipeline.launch(Death("nobody", "sink.flushed"))
    try:
        driver.wait_at_the_step()
        pipeline.goes_on(driver)
        driver.go_on()  # what Spark has not killed of the first one ends its work now
        if driver.end() != 0:
            driver.fail("the driver did not get to the end")
    finally:
        driver.kill()


@pytest.mark.parametrize("kind", ["ottla", "apache"])
@pytest.mark.parametrize("atomicity", ["slot", "batch"])
def test_s6_of_two_attempts_at_a_task_one_counts(
    kind: str, atomicity: str, cluster: SparkCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    need_jars(kind, request)
    with mortal(kind, tmp_path) as broker:
        conf = (*_CONF, *_SPECULATION)
        pipeline = Pipeline(broker, tmp_path, atomicity=atomicity, lines=500, master=cluster.master, conf=conf)
        tried(partial(_with_a_slow_task, pipeline))
        assert pipeline.words() == pipeline.expected
        assert pipeline.open_transactions() == []
        with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            ids = [each.transactional_id for each in admin.list_transactions("__ottla/.*")]
        second = [name for name in ids if name.endswith("/attempt-1")]
        assert bool(second) == (atomicity == "slot"), "a second attempt has a transaction of its own"


def test_s6_negative_control_at_least_once_both_attempts_are_seen(cluster: SparkCluster, tmp_path: Path) -> None:
    with mortal("ottla", tmp_path) as broker:
        conf = (*_CONF, *_SPECULATION)
        pipeline = Pipeline(
            broker,
            tmp_path,
            atomicity="slot",
            semantics="at-least-once",
            lines=500,
            master=cluster.master,
            conf=conf,
        )
        tried(partial(_with_a_slow_task, pipeline))
        words = pipeline.words()
        assert set(words) == set(pipeline.expected), "nothing is lost"
        assert words - pipeline.expected, "the check could not fail: nothing was written twice"
