"""Calls that find and end what hangs (SPEC T14): the journeys on our broker, and coordinators that are missing."""

from collections.abc import Callable, Iterator

import pytest

from ottla import AsyncAdmin, AsyncProducer, KafkaError, NewTopic, NotHangingError, TopicPartition
from ottla.broker.access.acls import AclFilter
from ottla.broker.config_keys import STANDARD_AUTHORIZER
from ottla.broker.runtime.shard import ShardRunner
from ottla.testing import AsyncBroker, Broker
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.hashing import coordinator_partition
from ottla.wire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.wire.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from ottla.wire.messages.list_transactions import ListTransactionsResponse
from ottla.wire.messages.metadata import MetadataResponse
from tests.broker.guarded import allowed
from tests.client import repair_journeys
from tests.client.conftest import Watchdog
from tests.client.fake_kafka import Asked
from tests.client.hanging import UNVERIFIED
from tests.client.scripted_broker import QUICK, Answer, ScriptedBroker, Usual, changed, instead
from tests.coordinator.txn.talks import TWO_PHASE_SETTINGS


@pytest.fixture(scope="module")
def unverified() -> Iterator[str]:
    with Broker(UNVERIFIED) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("journey", repair_journeys.ALL, ids=lambda journey: journey.__name__)
def test_on_our_broker(journey: Callable[[str], None], unverified: str) -> None:
    journey(unverified)


async def test_t14_nobody_can_tell_what_hangs_while_a_coordinator_is_missing(watchdog: Watchdog) -> None:
    """What it knows would look as if nobody knew it; a marker would then tear a transaction that lives."""
    tp, quick = TopicPartition("t", 0), {"default.api.timeout.ms": 500, "request.timeout.ms": 500}
    topics = {"t": 1, "__transaction_state": 2}
    producers = (PartitionResponse(0, active_producers=(ProducerState(7, 0, 0, 0, -1, 0),)),)
    async with watchdog(), ScriptedBroker(topics) as broker, AsyncAdmin({**broker.config(), **quick}) as admin:
        broker.always(
            ApiKey.DESCRIBE_PRODUCERS, instead(DescribeProducersResponse(0, (TopicResponse("t", producers),)))
        )
        broker.always(ApiKey.LIST_TRANSACTIONS, instead(ListTransactionsResponse()))
        broker.always(ApiKey.DESCRIBE_TRANSACTIONS, _not_found)
        assert [each.is_hanging for each in await admin.open_transactions([tp])] == [True]
        broker.always(ApiKey.METADATA, changed(_without_leader))
        for call in (admin.open_transactions([tp]), admin.end_hanging_transaction(tp, 7, 0)):
            with pytest.raises(KafkaError, match="__transaction_state-1 has no leader, so nobody can tell which"):
                await call
        assert broker.asked(ApiKey.WRITE_TXN_MARKERS) == []


async def test_t14_nobody_can_tell_what_hangs_while_a_coordinator_has_not_read_its_log(watchdog: Watchdog) -> None:
    async with watchdog(), AsyncBroker(TWO_PHASE_SETTINGS) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        two_phase = {**servers, "transactional.id": "decided", "transaction.two.phase.commit.enable": True}
        async with AsyncAdmin(servers) as admin, AsyncProducer(two_phase) as producer:
            await admin.create_topics([NewTopic("t", 2)])
            await producer.init_transactions()
            await producer.begin_transaction()
            await (await producer.send("t", b"a", partition=0))
            await (await producer.send("t", b"b", partition=1))
            handle = await producer.prepare_transaction()
            runner = broker.node.transactions.find("decided")
            assert isinstance(runner, ShardRunner)
            assert [each.is_hanging for each in await admin.open_transactions()] == [False, False]
            runner.unload()  # as when its log cannot be read
            whose = (TopicPartition("t", 0), handle.producer_id, handle.producer_epoch)
            told = f"{runner.tp} has a leader that does not coordinate it: perhaps .*, so nobody can tell which"
            for call in (admin.open_transactions(), admin.who_holds([whose[0]]), admin.end_hanging_transaction(*whose)):
                with pytest.raises(KafkaError, match=told):
                    await call
            described = await admin.describe_producers([TopicPartition("t", 0)])
            assert [each.transaction_start_offset for each in described[TopicPartition("t", 0)]] == [0]


@pytest.mark.parametrize(
    ("answered", "told"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None),
        (ErrorCode.NOT_COORDINATOR, None),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "__transaction_state-2 has a leader that does not coordinate it"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "only who may DESCRIBE all transactional ids can tell"),
    ],
)
async def test_t14_every_coordinator_is_asked_whether_it_is_there(
    watchdog: Watchdog, answered: ErrorCode, told: str | None
) -> None:
    async def last_answers(asked: Asked, usual: Usual) -> Answer:
        *others, last = (
            TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, each) for each in asked.message.transactional_ids
        )
        return DescribeTransactionsResponse(0, (*others, last._replace(error_code=answered)))

    producers = (PartitionResponse(0, active_producers=(ProducerState(7, 0, 0, 0, -1, 0),)),)
    topics = {"t": 1, "__transaction_state": 3}
    async with watchdog(), ScriptedBroker(topics) as broker, AsyncAdmin({**broker.config(), **QUICK}) as admin:
        broker.always(
            ApiKey.DESCRIBE_PRODUCERS, instead(DescribeProducersResponse(0, (TopicResponse("t", producers),)))
        )
        broker.always(ApiKey.LIST_TRANSACTIONS, instead(ListTransactionsResponse()))
        broker.script(ApiKey.DESCRIBE_TRANSACTIONS, last_answers)
        broker.always(ApiKey.DESCRIBE_TRANSACTIONS, _not_found)
        if told is None:
            assert [each.is_hanging for each in await admin.open_transactions([TopicPartition("t", 0)])] == [True]
        else:
            with pytest.raises(KafkaError, match=told):
                await admin.open_transactions([TopicPartition("t", 0)])
        asked = [request.transactional_ids for request in broker.asked(ApiKey.DESCRIBE_TRANSACTIONS)]
        assert len(asked) == (2 if told is None else 1)
        for ids in asked:
            assert sorted(coordinator_partition(each, 3) for each in ids) == [0, 1, 2]


async def test_t14_a_transaction_that_may_not_be_described_is_not_torn(watchdog: Watchdog) -> None:
    """Everybody may do everything but describe this one id: to our admin it looks as if nobody had it."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    tp = TopicPartition("t", 0)
    async with watchdog(), AsyncBroker(settings) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        async with AsyncAdmin(servers) as admin, AsyncProducer({**servers, "transactional.id": "x"}) as producer:
            await admin.create_topics([NewTopic("t", 1)])
            await producer.init_transactions()
            await producer.begin_transaction()
            await (await producer.send("t", b"a"))
            others = allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "x", principal="User:other")
            await broker.node.acls.create([others])
            (found,) = await admin.open_transactions()
            assert (found.is_hanging, found.transactional_id) == (True, None)
            for call in (admin.end_hanging_transaction, admin.abort_transaction):
                with pytest.raises(NotHangingError, match=f"in {tp} is not hanging: .* you may not DESCRIBE its trans"):
                    await call(tp, found.producer_id, found.producer_epoch)
            await broker.node.acls.delete([AclFilter()])
            await producer.commit_transaction()
            assert [each.value for each in await broker.records("t", read_committed=True)] == [b"a"]


async def _not_found(asked: Asked, usual: Usual) -> Answer:
    """The coordinator is there, and knows nobody."""
    states = (TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, each) for each in asked.message.transactional_ids)
    return DescribeTransactionsResponse(0, tuple(states))


def _without_leader(answer: MetadataResponse) -> MetadataResponse:
    """The metadata, but nobody leads the last partition of the transactions' topic."""
    return answer._replace(
        topics=tuple(
            topic._replace(
                partitions=tuple(
                    each._replace(leader_id=-1) if each.partition_index == 1 else each for each in topic.partitions
                )
            )
            if topic.name == "__transaction_state"
            else topic
            for topic in answer.topics
        )
    )


async def test_t14_producers_are_asked_about_five_hundred_partitions_at_once(watchdog: Watchdog) -> None:
    partitions = [TopicPartition("t", number) for number in range(1_100)]

    async def none_open(asked: Asked, usual: Usual) -> Answer:
        (topic,) = asked.message.topics
        return DescribeProducersResponse(
            0, (TopicResponse("t", tuple(map(PartitionResponse, topic.partition_indexes))),)
        )

    async with watchdog(), ScriptedBroker({"t": 1_100}) as broker, AsyncAdmin(broker.config()) as admin:
        broker.always(ApiKey.DESCRIBE_PRODUCERS, none_open)
        assert await admin.open_transactions(partitions) == []
        asked = [request.topics[0].partition_indexes for request in broker.asked(ApiKey.DESCRIBE_PRODUCERS)]
        assert sorted(map(len, asked)) == [100, 500, 500]
        assert sorted(number for each in asked for number in each) == list(range(1_100))
