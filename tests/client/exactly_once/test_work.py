"""The loop of `exactly_once` (SPEC T11) on our own broker."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla import Admin, AsyncAdmin, AsyncProducer, IllegalStateError, Producer, ProducerFencedError, exactly_once
from ottla.client.exactly_once.work import AsyncExactlyOnce
from ottla.testing import Broker, Faults
from tests.client import exactly_once_journeys
from tests.client.interrupts import UserInterrupt
from tests.client.journeys import PATIENCE_S, make_topic, read_all


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def faulty() -> Iterator[tuple[str, Faults]]:
    faults = Faults()
    with Broker(faults=faults) as broker:
        yield broker.bootstrap_servers, faults


@pytest.mark.parametrize("journey", exactly_once_journeys.ALL, ids=lambda journey: journey.__name__)
def test_on_our_broker(journey: Callable[[str], None], servers: str) -> None:
    journey(servers)


def test_t11_a_batch_that_never_ends_in_time_is_not_done_again_for_ever(servers: str) -> None:
    """Its later records meet the time-out while they are sent, and not at the commit."""
    source, sink = make_topic(servers), make_topic(servers)
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(5):
            producer.send(source, b"%d" % number)
    config = {"bootstrap.servers": servers, "group.id": sink, "transaction.timeout.ms": 100}
    rounds = 0
    told = r"its transaction was open for [\d.]+ s, and transaction\.timeout\.ms=100 allows less"
    with (
        Admin({"bootstrap.servers": servers}) as admin,
        pytest.raises(ProducerFencedError, match=told),
        exactly_once(source, sink, sink, config, until_end=True) as work,
    ):
        for batch in work:
            rounds += 1
            for record in batch:
                batch.send(record.value)
                batch.flush()
                while admin.describe_transactions([sink])[sink].state in ("Ongoing", "PrepareAbort"):
                    assert rounds <= 2
    assert rounds == 2
    with exactly_once(source, sink, sink, {**config, "transaction.timeout.ms": 60_000}, until_end=True) as work:
        for batch in work:
            for record in batch:
                batch.send(record.value)
    assert [record.value for record in read_all(servers, sink)] == [b"%d" % each for each in range(5)]


def _in_a_group(servers: str, count: int) -> tuple[str, exactly_once]:
    """A group whose one member will have `count` records to work on. Its requests are given up early."""
    source, sink = make_topic(servers), make_topic(servers)
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(count):
            producer.send(source, b"%d" % number)
    config = {"bootstrap.servers": servers, "group.id": sink, "request.timeout.ms": 500}
    return sink, exactly_once(source, sink, sink, config)


def _members(servers: str, group: str) -> int:
    with Admin({"bootstrap.servers": servers}) as admin:
        return len(admin.describe_groups([group])[group].members)


@pytest.mark.parametrize("cancellations", [1, 2, 6])
@pytest.mark.parametrize("api", ["EndTxn", "TxnOffsetCommit", "LeaveGroup"])
async def test_t11_a_close_that_is_cancelled_leaves_no_member(
    faulty: tuple[str, Faults], api: str, cancellations: int
) -> None:
    """It would keep its partitions from everybody, with heartbeats and without a poll."""
    servers, faults = faulty
    group, work = await asyncio.to_thread(_in_a_group, servers, 3)
    unanswered = faults.drop(api, silent=True)

    async def copy() -> None:
        async with work as batches:
            async for batch in batches:
                for record in batch:
                    await batch.send(record.value)
                await batch.flush()
                if api == "EndTxn":
                    raise ZeroDivisionError
                return

    others = asyncio.all_tasks()
    copying = asyncio.ensure_future(copy())
    await asyncio.to_thread(unanswered.wait, PATIENCE_S)
    for _ in range(cancellations):
        copying.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await copying
    assert asyncio.all_tasks() == others
    if api != "LeaveGroup":
        assert await asyncio.to_thread(_members, servers, group) == 0


def test_t11_an_interruption_while_it_closes_leaves_no_member(faulty: tuple[str, Faults]) -> None:
    servers, faults = faulty
    group, work = _in_a_group(servers, 3)
    unanswered = faults.drop("EndTxn", silent=True)

    def interrupt(*_: object) -> None:
        raise UserInterrupt

    def interrupts() -> None:
        unanswered.wait(PATIENCE_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    interrupting = threading.Thread(target=interrupts)
    try:
        with pytest.raises(UserInterrupt), work as batches:
            for batch in batches:
                for record in batch:
                    batch.send(record.value)
                batch.flush()
                interrupting.start()
                raise ZeroDivisionError
    finally:
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)
    assert _members(servers, group) == 0


async def test_t11_a_loop_that_had_no_work_for_longer_than_its_id_is_kept_goes_on() -> None:
    """Its coordinator has forgotten it by then (transactional.id.expiration.ms, a week)."""
    with Broker() as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        source, sink = [await asyncio.to_thread(make_topic, broker.bootstrap_servers) for _ in range(2)]
        config = {**servers, "group.id": sink, "auto.offset.reset": "earliest"}
        async with (
            asyncio.timeout(PATIENCE_S),
            AsyncAdmin(servers) as admin,
            AsyncProducer(servers) as producer,
            exactly_once(source, sink, sink, config) as batches,
        ):

            async def states_are(*states: str) -> None:
                there: tuple[str, ...] | None = None
                while there != states:
                    there = tuple(each.state for each in await admin.list_transactions())

            async def work_comes_rarely() -> None:
                await (await producer.send(source, b"before"))
                await states_are("CompleteCommit")
                await asyncio.to_thread(broker.clock.advance, 8 * 24 * 3_600_000)
                await states_are()
                await (await producer.send(source, b"after"))
                await states_are("CompleteCommit")
                batches.stop()

            coming = asyncio.ensure_future(work_comes_rarely())
            async for batch in batches:
                for record in batch:
                    await batch.send(record.value)
            await coming
        copied = await asyncio.to_thread(read_all, broker.bootstrap_servers, sink)
        assert [record.value for record in copied] == [b"before", b"after"]


async def test_t11_a_second_task_that_asks_for_a_batch_meanwhile_is_refused(servers: str) -> None:
    """Each batch would commit the one that the other is working on."""
    group, work = await asyncio.to_thread(_in_a_group, servers, 3)
    refused: list[IllegalStateError] = []

    async def second(batches: AsyncExactlyOnce) -> None:
        try:
            await anext(batches)
        except IllegalStateError as error:
            refused.append(error)

    async with work as batches:
        batch = await anext(batches)
        for record in batch.records:
            await batch.send(record.value)
        asking = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0)
        await asyncio.ensure_future(second(batches))
        asking.cancel()
        await asyncio.wait({asking})
    (error,) = refused
    assert "Let one task (with blocking code, one thread) ask for batches" in str(error)
    source = batch.records[0].topic
    config = {"bootstrap.servers": servers, "group.id": group}
    async with exactly_once(source, group, group, config, until_end=True) as rest:
        async for batch in rest:
            for record in batch:
                await batch.send(record.value)
    copied = await asyncio.to_thread(read_all, servers, group)
    assert [record.value for record in copied] == [b"0", b"1", b"2"]


def test_t11_a_second_thread_that_asks_for_a_batch_is_refused(servers: str) -> None:
    group, work = _in_a_group(servers, 3)
    with work as batches:
        batch = next(batches)
        with ThreadPoolExecutor(2) as pool:
            with pytest.raises(IllegalStateError, match="Let one task"):
                pool.submit(next, batches).result(PATIENCE_S)
            list(pool.map(lambda record: batch.send(record.value), batch.records))
    assert sorted(record.value or b"" for record in read_all(servers, group)) == [b"0", b"1", b"2"]
    with pytest.raises(IllegalStateError, match="it was committed, so this record is missing in it"):
        batch.send(b"late")
