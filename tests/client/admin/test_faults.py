"""An admin call that cannot go on says so at once, and an answer that says nothing is no answer."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla import (
    AsyncAdmin,
    AsyncProducer,
    IllegalStateError,
    InternalError,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
)
from ottla.client.admin.types import OffsetSpec, TransactionOutcome
from ottla.client.config.admin import admin_config
from ottla.client.core.producer.handle import TransactionHandle
from ottla.client.net.cluster import Cluster
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.end_txn import EndTxnResponse
from tests.client.blame import blames
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import Hold, ScriptedBroker, changed, instead, silence

Call = Callable[[AsyncAdmin], Awaitable[object]]

_T0 = TopicPartition("t", 0)
_HANDLE = TransactionHandle("id", 1, 0)
#: Each waits in another way: for a broker, for a coordinator, for metadata, for a leader.
_WAITING: list[tuple[ApiKey, Call]] = [
    (ApiKey.CREATE_TOPICS, lambda admin: admin.create_topics([NewTopic("t")])),
    (ApiKey.FIND_COORDINATOR, lambda admin: admin.describe_groups(["g", "h"])),
    (ApiKey.METADATA, lambda admin: admin.describe_topics(["t"])),
    (ApiKey.LIST_OFFSETS, lambda admin: admin.list_offsets({_T0: OffsetSpec.LATEST})),
    (ApiKey.END_TXN, lambda admin: admin.end_transaction(_HANDLE, commit=True)),
]
_names = [api.name.lower() for api, _ in _WAITING]


@pytest.mark.parametrize(("api", "call"), _WAITING, ids=_names)
async def test_a_call_that_waits_ends_with_its_client(watchdog: Watchdog, api: ApiKey, call: Call) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, AsyncAdmin(broker.config()) as admin:
        held = Hold(silence)
        broker.always(api, held)
        waiting = asyncio.ensure_future(call(admin))
        await held.reached.wait()
        await admin.close()
        with pytest.raises(IllegalStateError, match="the admin client is closed"):
            await waiting
        with pytest.raises(IllegalStateError, match="the admin client is closed"):
            await call(admin)


@pytest.mark.parametrize(("api", "call"), _WAITING, ids=_names)
async def test_a_call_that_waits_hears_of_a_fault_of_the_cluster(watchdog: Watchdog, api: ApiKey, call: Call) -> None:
    fault = ZeroDivisionError("nobody expects this")
    async with watchdog(), ScriptedBroker({"t": 1}) as broker:
        cluster = Cluster(admin_config(broker.config()), random.Random(0))
        async with AsyncAdmin(broker.config(), cluster=cluster) as admin:
            held = Hold(silence)
            broker.always(api, held)
            waiting = asyncio.ensure_future(call(admin))
            await held.reached.wait()
            cluster.supervisor.crash(fault)
            for each in (waiting, call(admin)):
                with pytest.raises(InternalError) as caught:
                    await each
                assert blames(caught.value, fault)
        await cluster.close()


async def test_a_call_that_is_repeated_ends_with_its_client_in_the_pause(watchdog: Watchdog) -> None:
    pauses = {"retry.backoff.ms": 60_000, "retry.backoff.max.ms": 60_000}
    async with watchdog(), ScriptedBroker({"t": 1}) as broker:
        admin = AsyncAdmin({**broker.config(), **pauses})
        await admin.start()
        refused = DescribeGroupsResponse(groups=(DescribedGroup(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "", "g"),))
        broker.always(ApiKey.DESCRIBE_GROUPS, instead(refused))
        waiting = asyncio.ensure_future(admin.describe_groups(["g"]))
        await broker.saw(ApiKey.DESCRIBE_GROUPS)
        await asyncio.wait({waiting}, timeout=0)
        await admin.close()
        with pytest.raises(IllegalStateError, match="the admin client is closed"):
            await waiting


async def test_clients_that_share_a_cluster_are_closed_one_by_one(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker:
        cluster = Cluster(admin_config(broker.config()), random.Random(0))
        first, second = (AsyncAdmin(broker.config(), cluster=cluster) for _ in range(2))
        assert [topic.name for topic in await first.list_topics()] == ["t"]
        await first.close()
        assert [topic.name for topic in await second.list_topics()] == ["t"]
        assert len({asked.connection for asked in broker.requests if asked.api is ApiKey.METADATA}) <= 2
        await second.close()
        assert cluster.supervisor.failure is None
        await cluster.close()


async def test_an_error_code_that_only_newer_brokers_know_is_told_as_one(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker() as broker, AsyncAdmin(broker.config()) as admin:
        broker.always(ApiKey.END_TXN, instead(EndTxnResponse(error_code=9_999)))
        with pytest.raises(KafkaError, match="error code 9999"):
            await admin.end_transaction(_HANDLE, commit=True)


def _nothing(**fields: Any) -> Any:
    return changed(lambda answer: answer._replace(**fields))


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "x" * 40_000, "a topic", "ä"])
async def test_a_name_that_no_topic_can_have_is_refused_here(watchdog: Watchdog, name: str) -> None:
    calls: list[Call] = [
        lambda admin: admin.create_topics([NewTopic(name)]),
        lambda admin: admin.delete_topics([name]),
        lambda admin: admin.create_partitions({name: 2}),
        lambda admin: admin.describe_topics([name]),
        lambda admin: admin.list_offsets({TopicPartition(name, 0): OffsetSpec.LATEST}),
    ]
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, AsyncAdmin(broker.config()) as admin:
        for call in calls:
            with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION: Topic name is invalid: ") as caught:
                await call(admin)
            assert len(str(caught.value)) < 500
        assert [topic.name for topic in await admin.list_topics()] == ["t"]


async def test_a_description_that_was_left_out_is_asked_for_again(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, AsyncAdmin(broker.config()) as admin:
        broker.script(ApiKey.DESCRIBE_GROUPS, instead(DescribeGroupsResponse()))
        broker.always(
            ApiKey.DESCRIBE_GROUPS, instead(DescribeGroupsResponse(groups=(DescribedGroup(0, None, "g", "Empty"),)))
        )
        assert (await admin.describe_groups(["g"]))["g"].state == "Empty"
        broker.script(ApiKey.DELETE_GROUPS, instead(DeleteGroupsResponse()))
        broker.always(ApiKey.DELETE_GROUPS, instead(DeleteGroupsResponse(results=(DeletableGroupResult("g", 0),))))
        await admin.delete_groups(["g"])
        assert (len(broker.asked(ApiKey.DESCRIBE_GROUPS)), len(broker.asked(ApiKey.DELETE_GROUPS))) == (2, 2)
        broker.script(ApiKey.METADATA, _nothing(topics=()))
        assert set(await admin.describe_topics(["t"])) == {"t"}


async def test_an_offset_that_was_left_out_is_asked_for_again(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 2}) as broker, AsyncAdmin(broker.config()) as admin:
        t1 = TopicPartition("t", 1)
        broker.kafka.write(t1, b"v")
        broker.script(ApiKey.LIST_OFFSETS, _nothing(topics=()))
        found = await admin.list_offsets({_T0: OffsetSpec.LATEST, t1: OffsetSpec.LATEST})
        assert {tp: at.offset for tp, at in found.items()} == {_T0: 0, t1: 1}
        broker.script(ApiKey.OFFSET_COMMIT, _nothing(topics=()))
        await admin.alter_group_offsets("g", {t1: OffsetAndMetadata(1)})
        broker.script(ApiKey.OFFSET_FETCH, _nothing(groups=()))
        assert await admin.list_group_offsets("g") == {}  # the fake lists none
        broker.script(ApiKey.OFFSET_FETCH, _nothing(groups=()))
        assert await admin.list_group_offsets("g", [_T0, t1]) == {t1: OffsetAndMetadata(1, "", -1)}
        assert [len(broker.asked(api)) for api in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH)] == [2, 4]


async def test_the_end_of_a_transaction_that_has_ended_is_known(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker() as broker, AsyncAdmin(broker.config()) as admin:
        broker.script(ApiKey.END_TXN, instead(EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)))
        broker.always(ApiKey.END_TXN, instead(EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)))
        assert await admin.end_transaction(_HANDLE, commit=True) is TransactionOutcome.FENCED


async def test_t14_a_producer_is_fenced_whatever_time_out_its_broker_allows(watchdog: Watchdog) -> None:
    async with watchdog(), AsyncBroker({"transaction.max.timeout.ms": "5000"}) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        settings = {**servers, "transactional.id": "x", "transaction.timeout.ms": 5_000}
        async with AsyncAdmin(servers) as admin, AsyncProducer(settings) as producer:
            await admin.create_topics([NewTopic("t")])
            await producer.init_transactions()
            await producer.begin_transaction()
            await (await producer.send("t", b"v"))
            await admin.fence_producers(["x"])
            assert (await admin.describe_transactions(["x"]))["x"].state == "Empty"
            async with AsyncProducer(settings) as successor:
                await successor.init_transactions()
                assert (await admin.describe_transactions(["x"]))["x"].timeout_ms == 5_000
