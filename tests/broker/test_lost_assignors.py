"""A10: an assignor that hangs, or ends in an odd way, costs its group a target and nobody anything else."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from ottla.assign.server import (
    GroupSpec,
    MemberSpec,
    Partitions,
    ServerAssignor,
    SubscriptionType,
    TopicSpec,
    UniformAssignor,
)
from ottla.base.limits import MAX_LOST_ASSIGNOR_CALLS
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.runtime.assigning import Assigning
from ottla.broker.runtime.shard import ShardRunner
from ottla.coordinator.decision import AssignPartitions, ReportFault
from ottla.coordinator.group.shard import GroupShard
from ottla.testing import AsyncBroker

_TOPIC_ID = bytes(15) + b"t"
_SPEC = GroupSpec({"m1": MemberSpec((_TOPIC_ID,), {})}, {_TOPIC_ID: TopicSpec("t", 2)}, SubscriptionType.HOMOGENEOUS)
_LONG_S = 60.0


class Hangs:
    """An assignor that does not come back before the test lets it."""

    name = "hangs"

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.released = threading.Event()

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        self.entered.release()
        self.released.wait()
        return {"m1": {_TOPIC_ID: (0, 1)}}


class Spins:
    """An assignor in a loop without an end, which takes the event loop's time."""

    name = "spins"

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.ended = threading.Event()

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        try:
            self.entered.release()
            while True:
                try:
                    sum(range(10))
                except ArithmeticError:
                    continue
        finally:
            self.ended.set()


class Clears:
    """An assignor that empties what it is given."""

    name = "clears"

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        for given in (group.members, group.topics):
            cast("dict[object, object]", given).clear()
        return {"m1": {_TOPIC_ID: itertools.count()}}  # type: ignore[dict-item]


class Takes:
    """An assignor that takes the topics out of the lists that it is given, and gives nobody anything."""

    name = "takes"

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        for member in group.members.values():
            cast("list[bytes]", member.topic_ids).clear()
        return {}


class UnspeakableError(Exception):
    """A fault whose text cannot be made."""

    def __str__(self) -> str:
        raise AttributeError("no text")


class Ends:
    """An assignor that ends with an exception that is not for others."""

    name = "ends"

    def __init__(self, fault: BaseException) -> None:
        self._fault = fault

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        raise self._fault


class Short(Assigning):
    """The time is over a moment after the assignor was entered, however slow the machine is."""

    entered: threading.Semaphore | None = None
    _limit_s = 0.001

    @property
    def limit_s(self) -> float:
        entered, self.entered = self.entered, None
        assert entered is None or entered.acquire(timeout=_LONG_S)
        return self._limit_s

    @limit_s.setter
    def limit_s(self, limit_s: float) -> None:
        self._limit_s = limit_s


class Coordinator:
    """What `Assigning` tells: the results, one after another."""

    def __init__(self) -> None:
        self.shard = self
        self._results: asyncio.Queue[Mapping[str, Partitions] | None] = asyncio.Queue()

    def tell(self, decide: Callable[[int], Any]) -> None:
        decide(0)

    def assigned(self, job: AssignPartitions, computed: Mapping[str, Partitions] | None, now_ms: int) -> None:
        self._results.put_nowait(computed)

    async def result(
        self, assigning: Assigning, assignor: ServerAssignor, spec: GroupSpec = _SPEC
    ) -> Mapping[str, Partitions] | None:
        """What comes of one call of this assignor; None when it failed."""
        runner = cast("ShardRunner[GroupShard]", self)
        assigning.start(runner, AssignPartitions("g", 2, assignor, spec, None))
        return await self._results.get()


async def test_a10_an_assignor_that_hangs_is_given_up_and_then_not_called(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    assigning = Short(broker.node.image, broker.node.partitions, limit_s=0.001)
    coordinator, hangs = Coordinator(), Hangs()
    for _ in range(MAX_LOST_ASSIGNOR_CALLS):
        assigning.entered = hangs.entered
        assert await coordinator.result(assigning, hangs) is None
    assert caplog.text.count("assignor hangs failed for epoch 2: it took more than 0.001 s") == MAX_LOST_ASSIGNOR_CALLS

    assert await coordinator.result(assigning, hangs) is None
    assert not hangs.entered.acquire(blocking=False)
    assert f"it is not called, because {MAX_LOST_ASSIGNOR_CALLS} calls of it have not come back" in caplog.text

    assigning.limit_s = _LONG_S
    assert await coordinator.result(assigning, UniformAssignor()) == {"m1": {_TOPIC_ID: (0, 1)}}

    hangs.released.set()
    while await coordinator.result(assigning, hangs) is None:  # the first of them is on its way back
        pass
    assert await coordinator.result(assigning, hangs) == {"m1": {_TOPIC_ID: (0, 1)}}


async def test_a10_a_loop_without_an_end_is_ended(broker: AsyncBroker, caplog: pytest.LogCaptureFixture) -> None:
    assigning = Short(broker.node.image, broker.node.partitions, limit_s=0.001)
    coordinator = Coordinator()
    for _ in range(MAX_LOST_ASSIGNOR_CALLS + 2):
        spins = Spins()
        assigning.entered = spins.entered
        assert await coordinator.result(assigning, spins) is None
        assert await asyncio.to_thread(spins.ended.wait, _LONG_S)
    assert "assignor spins failed for epoch 2: it took more than 0.001 s" in caplog.text

    assigning.limit_s = _LONG_S
    assert await coordinator.result(assigning, UniformAssignor()) == {"m1": {_TOPIC_ID: (0, 1)}}


async def test_a10_an_answer_without_an_end_is_read_as_far_as_there_are_partitions(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    assigning = Assigning(broker.node.image, broker.node.partitions)
    assert await Coordinator().result(assigning, Clears()) is None
    assert "assignor clears failed for epoch 2: partition t-2: the topic has 2" in caplog.text
    assert _SPEC.members


async def test_a10_what_an_assignor_does_with_its_own_picture_hides_nothing(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A coordinator's picture has lists, and members that subscribe alike have one of them together."""
    assigning = Assigning(broker.node.image, broker.node.partitions)
    topic_ids = [_TOPIC_ID]
    spec = _SPEC._replace(members={"m1": MemberSpec(topic_ids, {}), "m2": MemberSpec(topic_ids, {})})
    assert await Coordinator().result(assigning, Takes(), spec) is None
    assert "assignor takes failed for epoch 2: it gave t-0 to nobody" in caplog.text
    assert topic_ids == [_TOPIC_ID]


async def test_a10_a_fault_without_a_text_is_told_and_the_coordinator_hears_of_it(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the group would wait for its target for ever."""
    assigning = Assigning(broker.node.image, broker.node.partitions)
    async with asyncio.timeout(_LONG_S):
        assert await Coordinator().result(assigning, Ends(UnspeakableError())) is None
    assert "assignor ends failed for epoch 2: UnspeakableError" in caplog.text


@pytest.mark.parametrize("fault", [SystemExit(3), KeyboardInterrupt(), StopIteration(), GeneratorExit()])
async def test_a10_an_assignor_cannot_end_the_broker(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture, fault: BaseException
) -> None:
    assigning = Assigning(broker.node.image, broker.node.partitions)
    assert await Coordinator().result(assigning, Ends(fault)) is None
    assert f"assignor ends failed for epoch 2: it raised {type(fault).__name__}" in caplog.text


def test_a10_a_fault_that_a_request_met_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """An assignor of Kafka's is computed with the request, so there is no call to come back."""
    assigning = Assigning(MetadataImage(), cast("Any", None))
    assigning.start(cast("ShardRunner[GroupShard]", None), ReportFault("assignor uniform failed", IndexError("i")))
    (line,) = caplog.records
    assert (line.levelname, line.getMessage()) == ("ERROR", "assignor uniform failed")
    assert line.exc_info is not None
    assert isinstance(line.exc_info[1], IndexError)
