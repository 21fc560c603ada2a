"""The exactly-once sink on brokers with two-phase commit (KIP-939): no time-out ends a slot that is decided."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla import Admin
from ottla.spark.errors import PipelineError, SlotsLostError
from ottla.spark.ids import slot_id
from ottla.spark.ledger import BatchKey
from ottla.testing import Broker
from tests.client.two_phase_journeys import SETTINGS
from tests.interop.nodes import node_of
from tests.spark.sink_world import SinkWorld

_KEY = BatchKey("q", 0)
_NEVER_MS = 2**31 - 1
#: What kafka.transaction.timeout.ms says where a test lets a slot time out: a busy machine writes it before that.
_SOON_MS = 5_000
_SOON = {"kafka.transaction.timeout.ms": str(_SOON_MS)}


@pytest.fixture(scope="module", params=["ottla", pytest.param("apache", marks=pytest.mark.interop)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with two-phase commit, which looks for old transactions five times a second."""
    if request.param == "apache":
        request.getfixturevalue("apache_jars")
    with node_of(request.param, tmp_path_factory.mktemp("two-phase"), SETTINGS) as node:
        yield node.bootstrap


@pytest.fixture
def two_phase_world(servers: str, fresh_name: Callable[[str], str], tmp_path: Path) -> SinkWorld:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    return SinkWorld.create(servers, fresh_name("two-phase"), tmp_path / "checkpoint")


def _rows(text: str) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": pa.array([text.encode()], pa.binary())})


def _timeout_ms(world: SinkWorld, slot: int) -> int:
    name = slot_id(world.sink, slot, 0)
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        return admin.describe_transactions([name])[name].timeout_ms


def _wait_until_ended(world: SinkWorld, slot: int) -> None:
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        while admin.list_transactions(re.escape(slot_id(world.sink, slot, 0)), ["Ongoing"]):
            pass


def test_t15_a_decided_slot_is_not_lost_to_a_time_out(two_phase_world: SinkWorld) -> None:
    world = two_phase_world
    driver = world.driver(**_SOON)
    message = driver.write(_KEY, 0, _rows("a"))
    assert _timeout_ms(world, 0) == _NEVER_MS
    other = SinkWorld.create(world.bootstrap, f"{world.topic}-off", world.checkpoint)
    late = other.driver(**_SOON, **{"two.phase.commit": "off"})
    lost = late.write(_KEY, 0, _rows("b"))
    assert _timeout_ms(other, 0) == _SOON_MS
    _wait_until_ended(other, 0)
    with pytest.raises(SlotsLostError, match=r"transaction\.timeout\.ms"):
        late.commit([lost], 0)
    driver.commit([message], 0)
    assert world.output() == {"a": 1}


def test_t15_what_a_dead_driver_left_open_is_aborted_by_the_next(two_phase_world: SinkWorld) -> None:
    two_phase_world.driver().write(_KEY, 0, _rows("a"))
    assert _timeout_ms(two_phase_world, 0) == _NEVER_MS
    again = two_phase_world.driver()
    again.commit([again.write(_KEY, 0, _rows("a"))], 0)
    assert two_phase_world.output() == {"a": 1}


def test_t15_a_broker_without_it_gives_slots_a_time_out(world: SinkWorld) -> None:
    world.driver(**_SOON).write(_KEY, 0, _rows("a"))
    assert _timeout_ms(world, 0) == _SOON_MS
    with pytest.raises(PipelineError, match=r"unstable\.api\.versions\.enable=true"):
        world.driver(**{"two.phase.commit": "required"}).write(_KEY, 0, _rows("a"))


def test_t15_a_broker_that_does_not_allow_it_gives_slots_a_time_out(tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    with Broker({"unstable.api.versions.enable": "true"}) as broker:
        world = SinkWorld.create(broker.bootstrap_servers, "forbidden", tmp_path / "checkpoint")
        driver = world.driver(**_SOON)
        for slot in range(2):
            driver.write(_KEY, slot, _rows("a"))
            assert _timeout_ms(world, slot) == _SOON_MS
        with pytest.raises(PipelineError, match="does not allow two-phase commit"):
            world.driver(**{"two.phase.commit": "required"}).write(_KEY, 0, _rows("a"))
