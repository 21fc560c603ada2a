"""The loop of `exactly_once` (SPEC T11) on our own broker."""

from collections.abc import Callable, Iterator

import pytest

from ottla import Admin, Producer, ProducerFencedError, exactly_once
from ottla.testing import Broker
from tests.client import exactly_once_journeys
from tests.client.journeys import make_topic, read_all


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


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
