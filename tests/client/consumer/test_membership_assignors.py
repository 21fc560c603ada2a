"""What a custom assignor does wrong is told by the next poll of its consumer, and then the group goes on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest

from ottla import AssignorError, AsyncAdmin, AsyncConsumer, NewTopic, TopicPartition
from ottla.assign import Assignment, Cluster, InvalidAssignmentError, RangeAssignor, Subscription, Wrong
from ottla.testing.in_loop import AsyncBroker
from tests.client.blame import blames
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import QUICK

_T0 = TopicPartition("t", 0)
_POLL_S = 30.0
Assigned = dict[str, Assignment]


class UnexpectedError(BaseException):
    """What no `except Exception` catches."""


class RaisesOnce(RangeAssignor):
    """Raises `fault` in `where`, the first time."""

    name = "raises once"

    def __init__(self, where: str, fault: BaseException) -> None:
        self._where = where
        self._fault: BaseException | None = fault

    def _come_to(self, where: str) -> None:
        if where == self._where and self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        self._come_to("subscription_user_data")
        return None

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> Assigned:
        self._come_to("assign")
        return super().assign(cluster, subscriptions)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self._come_to("on_assignment")


class AnswersOnce(RangeAssignor):
    """Makes something else of a right assignment, the first time."""

    name = "answers once"

    def __init__(self, change: Callable[[Assigned], object]) -> None:
        self._change: Callable[[Assigned], object] | None = change

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> Assigned:
        change, self._change = self._change, None
        right = super().assign(cluster, subscriptions)
        return right if change is None else cast(Assigned, change(right))


@asynccontextmanager
async def subscribed(assignor: RangeAssignor) -> AsyncIterator[AsyncConsumer]:
    """A consumer that is alone in its group and divides with `assignor`, subscribed to `t` of one partition."""
    async with AsyncBroker() as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers, **QUICK}
        async with AsyncAdmin(servers) as admin:
            await admin.create_topics([NewTopic("t")])
        config = {**servers, "group.id": "g", "partition.assignment.strategy": [assignor]}
        consumer = AsyncConsumer(config)
        consumer.subscribe(["t"])
        try:
            yield consumer
        finally:
            with suppress(Exception):
                async with asyncio.timeout(1):
                    await consumer.abandon()


async def told(consumer: AsyncConsumer) -> BaseException:
    """What poll raises; a poll that returns nothing is not enough."""
    with pytest.raises((Exception, UnexpectedError)) as raised:
        await consumer.poll(_POLL_S)
    return raised.value


async def assigned(consumer: AsyncConsumer) -> frozenset[TopicPartition]:
    while not consumer.assignment():
        await consumer.poll(0.01)
    return consumer.assignment()


@pytest.mark.parametrize("where", ["assign", "on_assignment", "subscription_user_data"])
@pytest.mark.parametrize(
    "fault",
    [
        KeyError("somebody"),
        TypeError("something"),
        UnexpectedError(),
        pytest.param(asyncio.CancelledError()),
        ValueError("somewhat"),
    ],
    ids=repr,
)
async def test_what_an_assignor_raises_is_told_at_once_and_the_member_joins_again(
    watchdog: Watchdog, where: str, fault: BaseException
) -> None:
    async with watchdog(), subscribed(RaisesOnce(where, fault)) as consumer:
        assert blames(await told(consumer), fault)
        assert await assigned(consumer) == {_T0}


def _each(*partitions: object) -> Callable[[Assigned], object]:
    return lambda right: {member: Assignment(cast(tuple[TopicPartition, ...], partitions)) for member in right}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda right: {}, id="a member forgotten"),
        pytest.param(lambda right: None, id="nothing"),
        pytest.param(lambda right: dict.fromkeys(right), id="nothing for a member"),
        pytest.param(_each(TopicPartition("t", 7)), id="a partition that does not exist"),
        pytest.param(_each(TopicPartition("unknown", 0)), id="a topic that does not exist"),
        pytest.param(_each(TopicPartition("t", -1)), id="a negative partition"),
        pytest.param(_each(("t", "0")), id="a partition that is no number"),
        pytest.param(_each("t"), id="a partition that is no pair"),
        pytest.param(_each(), id="a partition forgotten"),
        pytest.param(_each(_T0, _T0), id="a partition given twice"),
    ],
)
async def test_what_an_assignor_may_not_answer_is_told_at_once_and_the_member_joins_again(
    watchdog: Watchdog, change: Callable[[Assigned], object]
) -> None:
    async with watchdog(), subscribed(AnswersOnce(change)) as consumer:
        assert "answers once" in str(await told(consumer))  # it names the assignor
        assert await assigned(consumer) == {_T0}


async def test_a7_the_others_go_on_without_the_member_whose_assignor_is_wrong(watchdog: Watchdog) -> None:
    async with watchdog(), AsyncBroker() as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers, **QUICK}
        async with AsyncAdmin(servers) as admin:
            await admin.create_topics([NewTopic("t", 2)])

        def member(assignor: RangeAssignor) -> AsyncConsumer:
            consumer = AsyncConsumer({**servers, "group.id": "g", "partition.assignment.strategy": [assignor]})
            consumer.subscribe(["t"])
            return consumer

        async with member(AnswersOnce(_each())) as leader, member(AnswersOnce(lambda right: right)) as other:
            error = await told(leader)
            assert isinstance(error, AssignorError)
            assert isinstance(error.__cause__, InvalidAssignmentError)
            assert (error.__cause__.wrong, error.__cause__.partitions[0]) == (Wrong.FORGOTTEN, _T0)
            while len(other.assignment()) < 2:
                await other.poll(0.01)
