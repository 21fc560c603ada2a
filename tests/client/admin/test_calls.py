"""Admin calls keep the time they are given, and do not disturb each other."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla import AsyncAdmin, NewTopic, RequestTimeoutError
from ottla.client.core.producer.handle import TransactionHandle
from ottla.testing.in_loop import AsyncBroker
from ottla.wire.apis import ApiKey
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import ScriptedBroker, silence

Call = Callable[[AsyncAdmin], Awaitable[object]]


@pytest.mark.parametrize(
    ("api", "call"),
    [
        (ApiKey.CREATE_TOPICS, lambda admin: admin.create_topics([NewTopic("t")], timeout_ms=0)),
        (ApiKey.DELETE_TOPICS, lambda admin: admin.delete_topics(["t"], timeout_ms=0)),
        (ApiKey.CREATE_PARTITIONS, lambda admin: admin.create_partitions({"t": 2}, timeout_ms=0)),
        (ApiKey.END_TXN, lambda admin: admin.end_transaction(TransactionHandle("id", 1, 0), commit=True, timeout_ms=0)),
    ],
    ids=["create_topics", "delete_topics", "create_partitions", "end_transaction"],
)
async def test_a_call_without_time_does_not_wait(watchdog: Watchdog, api: ApiKey, call: Call) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, AsyncAdmin(broker.config()) as admin:
        broker.always(api, silence)
        with pytest.raises(RequestTimeoutError):
            await call(admin)


async def test_calls_at_the_same_time_each_find_their_topics(watchdog: Watchdog) -> None:
    names = ["a", "b", "c"]
    async with (
        watchdog(),
        AsyncBroker() as broker,
        AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        await admin.create_topics([NewTopic(name) for name in names])
        for _ in range(5):
            found = await asyncio.gather(*(admin.describe_topics([name]) for name in names))
            assert [set(each) for each in found] == [{name} for name in names]
            listed, described = await asyncio.gather(admin.list_topics(), admin.describe_topics(["a"]))
            assert ([topic.name for topic in listed], set(described)) == (names, {"a"})


@pytest.mark.parametrize("wrong", ["7:0:id", None, (7, 0)])
async def test_t15_a_transaction_is_ended_by_its_handle(wrong: object) -> None:
    async with ScriptedBroker({"t": 1}) as broker, AsyncAdmin(broker.config()) as admin:
        with pytest.raises(TypeError, match=r"must be a TransactionHandle, not .*: TransactionHandle\.parse makes one"):
            await admin.end_transaction(wrong, commit=True)  # type: ignore[arg-type]
