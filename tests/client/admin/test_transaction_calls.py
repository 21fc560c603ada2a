"""Calls about transactions: many producers, what has become of a handle, and arguments that no broker takes."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla import (
    AsyncAdmin,
    AsyncProducer,
    KafkaError,
    NotHangingError,
    TopicPartition,
    TransactionHandle,
    TransactionOutcome,
)
from ottla.base.limits import MAX_REQUEST_ELEMENTS
from ottla.broker.runtime.shard import ShardRunner
from ottla.coordinator.txn.metadata import LAST_CLIENT_EPOCH
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from ottla.wire.messages.end_txn import EndTxnResponse
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import ScriptedBroker, instead

Call = Callable[[AsyncAdmin], Awaitable[Any]]
_T0 = TopicPartition("t", 0)
_TOO_LONG = "x" * 40_000


@asynccontextmanager
async def _broker() -> AsyncIterator[tuple[AsyncBroker, AsyncAdmin]]:
    """One whose transactions have a coordinator, and a client of it."""
    async with AsyncBroker() as broker, AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        await broker.node.transactions.ready()
        yield broker, admin


async def test_t14_so_many_producers_are_asked_about_in_pieces(watchdog: Watchdog) -> None:
    async with (
        watchdog(),
        AsyncBroker() as broker,
        AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        await broker.node.transactions.ready()
        fenced = await admin.fence_producers(["a", "b"])
        many = range(MAX_REQUEST_ELEMENTS + 1)
        assert {each.producer_id for each in fenced.values()} <= set(many)
        assert [each.transactional_id for each in await admin.list_transactions(producer_ids=many)] == ["a", "b"]
        assert [each.transactional_id for each in await admin.list_transactions(producer_ids=[])] == ["a", "b"]


async def test_t14_states_are_a_list_of_those_that_there_are(watchdog: Watchdog) -> None:
    async with (
        watchdog(),
        AsyncBroker() as broker,
        AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        await broker.node.transactions.ready()
        await admin.fence_producers(["a"])
        assert len(await admin.list_transactions(states=["Empty", "Ongoing"])) == 1
        with pytest.raises(TypeError, match=r"a list of states is needed, not a str: write \['Empty'\]"):
            await admin.list_transactions(states="Empty")
        with pytest.raises(ValueError, match="no broker knows the states 'empty', 'Open'"):
            await admin.list_transactions(states=["empty", "Ongoing", "Open"])


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "a" * 10_000])
async def test_t14_a_pattern_that_is_none_is_told_as_one(watchdog: Watchdog, pattern: str) -> None:
    async with (
        watchdog(),
        AsyncBroker() as broker,
        AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        await broker.node.transactions.ready()
        with pytest.raises(KafkaError, match="is no expression of RE2, or is too large") as told:
            await admin.list_transactions(pattern)
        assert told.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert repr(pattern)[:10] in str(told.value)
        assert len(str(told.value)) < 400


async def test_t15_a_handle_of_the_last_epoch_is_fenced_and_not_forgotten(watchdog: Watchdog) -> None:
    """The next transaction of its id has another producer id; the coordinator has forgotten nothing."""
    async with (
        watchdog(),
        AsyncBroker() as broker,
        AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        await broker.node.topics.create("t", 1, {})
        settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"}
        async with AsyncProducer(settings) as first:
            await first.init_transactions()
            await first.begin_transaction()
            await first.send("t", b"v")
            handle = await first.detach_transaction()
        assert await admin.end_transaction(handle, commit=True) is TransactionOutcome.ENDED
        runner = broker.node.transactions.find("x")
        assert isinstance(runner, ShardRunner)
        last = runner.shard.get("x")
        assert last is not None
        runner.tell(lambda now_ms: runner.shard.store.write((last._replace(producer_epoch=LAST_CLIENT_EPOCH),)))
        async with AsyncProducer(settings) as next_one:
            await next_one.init_transactions()
            await next_one.begin_transaction()
            await (await next_one.send("t", b"w"))
            assert await admin.end_transaction(handle, commit=True) is TransactionOutcome.FENCED
            await next_one.abort_transaction()
        unknown = handle._replace(transactional_id="y")
        assert await admin.end_transaction(unknown, commit=True) is TransactionOutcome.FORGOTTEN


@pytest.mark.parametrize(
    ("code", "producer_id", "outcome"),
    [
        (ErrorCode.NONE, 8, TransactionOutcome.FENCED),
        (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, 0, TransactionOutcome.FORGOTTEN),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0, TransactionOutcome.FORGOTTEN),
    ],
)
async def test_t15_whom_the_coordinator_has_instead_decides_what_a_handle_is(
    watchdog: Watchdog, code: ErrorCode, producer_id: int, outcome: TransactionOutcome
) -> None:
    async with watchdog(), ScriptedBroker() as broker, AsyncAdmin(broker.config()) as admin:
        broker.always(ApiKey.END_TXN, instead(EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)))
        described = TransactionState(code, "x", "Ongoing", producer_id=producer_id)
        broker.always(ApiKey.DESCRIBE_TRANSACTIONS, instead(DescribeTransactionsResponse(0, (described,))))
        assert await admin.end_transaction(TransactionHandle("x", 7, 0), commit=True) is outcome


@pytest.mark.parametrize("wrong", ["", _TOO_LONG, "\udc80"])
@pytest.mark.parametrize(
    "call",
    [
        lambda admin, wrong: admin.fence_producers(["a", wrong]),
        lambda admin, wrong: admin.describe_transactions([wrong]),
        lambda admin, wrong: admin.end_transaction(TransactionHandle(wrong, 1, 0), commit=True),
    ],
    ids=["fence_producers", "describe_transactions", "end_transaction"],
)
async def test_t14_ids_that_no_request_can_carry_are_refused(
    watchdog: Watchdog, call: Callable[[AsyncAdmin, str], Awaitable[Any]], wrong: str
) -> None:
    async with watchdog(), ScriptedBroker() as broker, AsyncAdmin(broker.config()) as admin:
        with pytest.raises(ValueError, match=r"a transactional id must (not be empty|take at most|be text)") as told:
            await call(admin, wrong)
        assert len(str(told.value)) < 300


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda admin: admin.abort_transaction(_T0, -1, 0), "producer_id must be from 0 to"),
        (lambda admin: admin.abort_transaction(_T0, 2**63, 0), "producer_id must be from 0 to"),
        (lambda admin: admin.abort_transaction(_T0, 1, -1), "producer_epoch must be from 0 to 32767, not -1"),
        (lambda admin: admin.abort_transaction(_T0, 1, 2**15), "producer_epoch must be from 0 to 32767"),
        (lambda admin: admin.abort_transaction(_T0, 1, 0, 2**31), "coordinator_epoch must be from -1 to 2147483647"),
        (lambda admin: admin.end_hanging_transaction(_T0, -1, 0), "producer_id must be from 0 to"),
        (lambda admin: admin.end_transaction(TransactionHandle("x", 1, 2**15), commit=True), "producer_epoch must be"),
        (lambda admin: admin.list_transactions(producer_ids=[1, 2**63]), "producer_ids must be from"),
        (lambda admin: admin.list_transactions(_TOO_LONG), "pattern must take at most"),
    ],
)
async def test_t14_numbers_that_nobody_has_are_refused(watchdog: Watchdog, call: Call, what: str) -> None:
    async with watchdog(), ScriptedBroker() as broker, AsyncAdmin(broker.config()) as admin:
        with pytest.raises(ValueError, match=what):
            await call(admin)


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.abort_transaction(_T0, "1", 0),
        lambda admin: admin.abort_transaction(_T0, 1, None),
        lambda admin: admin.list_transactions(producer_ids=["a"]),
    ],
)
async def test_t14_what_is_no_number_is_refused(watchdog: Watchdog, call: Call) -> None:
    async with watchdog(), ScriptedBroker() as broker, AsyncAdmin(broker.config()) as admin:
        with pytest.raises(TypeError, match="must be int"):
            await call(admin)


async def test_t14_why_a_marker_is_refused_is_told(watchdog: Watchdog) -> None:
    async with watchdog(), _broker() as (broker, admin):
        await broker.node.topics.create("t", 1, {})
        producer = (await admin.fence_producers(["x"]))["x"]
        with pytest.raises(KafkaError, match=r"t-0 takes no marker of producer .* with epoch 9: ") as told:
            await admin.abort_transaction(_T0, producer.producer_id, 9)
        assert told.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(KafkaError, match=r"t-0 takes no marker of producer .* coordinator epoch 1000: ") as told:
            await admin.abort_transaction(_T0, *producer, 1_000)
        assert told.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_t14_nothing_hangs_in_a_topic_that_is_not_there(watchdog: Watchdog) -> None:
    async with (
        watchdog(),
        AsyncBroker() as broker,
        AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        with pytest.raises(NotHangingError, match="there is no partition t-0; nothing was written"):
            await admin.end_hanging_transaction(_T0, 1, 0)
        await broker.node.topics.create("t", 1, {})
        with pytest.raises(NotHangingError, match="producer 1 has no open transaction in t-0; nothing was written"):
            await admin.end_hanging_transaction(_T0, 1, 0)


async def test_t5_a_delivery_of_an_id_that_has_expired_says_so(watchdog: Watchdog) -> None:
    async with watchdog(), AsyncBroker() as broker:
        await broker.node.topics.create("t", 1, {})
        await broker.node.transactions.ready()
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"}) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            broker.clock.advance(8 * 86_400_000)
            runner = broker.node.transactions.find("x")
            assert isinstance(runner, ShardRunner)
            runner.tell(lambda now_ms: runner.shard.store.forget(["x"], ()))
            with pytest.raises(KafkaError, match="x: the coordinator does not know this producer any more") as told:
                await (await producer.send("t", b"v"))
            assert told.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
