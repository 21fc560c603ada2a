"""The producer's core at moments that a network seldom brings about: each of these once stopped it."""

import pytest

from ottla.client.core import intents
from ottla.client.core.intents import NotSentError
from ottla.client.core.metadata import NO_LEADER
from ottla.client.core.producer.identity import MAX_EPOCH
from ottla.client.errors import AuthorizationError, DisconnectedError, RequestTimeoutError, SaslAuthenticationError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from tests.client.core.producer.by_hand import OTHER, ByHand


@pytest.mark.parametrize("epoch", [0, MAX_EPOCH], ids=["", "no epoch is left"])
def test_a_forgotten_topic_is_used_again_in_the_request_of_another_one(epoch: int) -> None:
    producer = ByHand("a", "b", metadata_max_idle_ms=5_000)
    producer.send("b")
    producer.identify(7, epoch)
    producer.connect()
    producer.acknowledge()
    for _ in range(3):  # the topic b is idle meanwhile, and forgotten
        producer.send("a")
        producer.acknowledge()
        producer.pass_time(2.5)
    assert producer.take(intents.Untrack).topics == {"b"}
    producer.know("a", "b")
    on_the_wire = producer.send("a")
    producer.append("a")
    again = producer.send("b")
    producer.acknowledge()
    producer.acknowledge()
    if epoch == MAX_EPOCH:
        producer.identify(8, 0)
        producer.acknowledge()
    assert on_the_wire.exception() is None
    assert again.exception() is None


def test_a_connection_that_was_gone_before_it_was_used_is_opened_again() -> None:
    producer = ByHand("a")
    producer.send("a")
    producer.identify(7, 0)
    producer.connect()
    producer.lose(ApiKey.PRODUCE, NotSentError("not connected"))
    assert producer.waiting(ApiKey.PRODUCE) == 0, "it would be asked for ever, and the loop would do nothing else"
    producer.connect()
    producer.acknowledge()


def test_records_that_time_out_say_why_their_broker_was_not_reached() -> None:
    producer = ByHand("a", delivery_timeout_ms=5_000, request_timeout_ms=1_000)
    delivery = producer.send("a")
    producer.identify(7, 0)
    refusal = SaslAuthenticationError("localhost:9092 refuses User:dave: he was removed")
    producer.cannot_connect(refusal)
    producer.pass_time(5.1)
    with pytest.raises(RequestTimeoutError, match=r"delivery\.timeout\.ms .*: localhost:9092 refuses") as failed:
        delivery.result()
    assert failed.value.__cause__ is refusal


def test_an_identity_that_does_not_come_fails_each_record_only_when_its_own_time_is_over() -> None:
    """It is asked for again and again, as by Java's producer."""
    producer = ByHand("a", delivery_timeout_ms=120_000)
    old = producer.send("a")
    producer.pass_time(119.0)
    new = producer.send("a")
    producer.pass_time(1.0)
    with pytest.raises(RequestTimeoutError, match=r"within delivery\.timeout\.ms .*: InitProducerId did not succeed"):
        old.result()
    assert not new.done()
    producer.take(intents.GiveUp)
    producer.asked(ApiKey.INIT_PRODUCER_ID)
    producer.identify(7, 0)
    producer.connect()
    producer.acknowledge()
    assert new.exception() is None


def test_an_identity_that_does_not_come_is_not_asked_for_when_nobody_needs_it_any_more() -> None:
    producer = ByHand("a", delivery_timeout_ms=120_000)
    delivery = producer.send("a")
    producer.pass_time(120.0)
    assert isinstance(delivery.exception(), RequestTimeoutError)
    producer.asked(ApiKey.INIT_PRODUCER_ID)
    producer.pass_time(1_000.0)
    assert not producer.waiting(ApiKey.INIT_PRODUCER_ID)


def test_an_identity_that_is_refused_for_good_fails_every_record() -> None:
    producer = ByHand("a")
    records = [producer.send("a") for _ in range(2)]
    refusal = InitProducerIdResponse(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    producer.answer(ApiKey.INIT_PRODUCER_ID, refusal)
    for delivery in records:
        with pytest.raises(AuthorizationError):
            delivery.result()


def test_without_a_pause_between_repetitions_a_missing_leader_is_waited_for_calmly() -> None:
    producer = ByHand("a", retry_backoff_ms=0, retry_backoff_max_ms=0)
    delivery = producer.send("a")
    producer.identify(7, 0)
    producer.connect()
    producer.acknowledge()
    producer.know()
    delivery = producer.send("a")
    assert producer.pass_time(1.0) <= 200
    producer.know("a")
    producer.acknowledge()
    assert delivery.done()


def test_all_topics_that_have_gone_are_asked_for() -> None:
    producer = ByHand("a", "b")
    for topic in ("a", "b"):
        producer.send(topic)
    producer.identify(7, 0)
    producer.connect()
    producer.acknowledge()
    producer.know()
    for topic in ("a", "b"):
        producer.send(topic)
    producer.pass_time(1.0)
    tracked = [intent.topics for intent in producer.intended if isinstance(intent, intents.Track)]
    assert frozenset().union(*tracked) == {"a", "b"}, "b waited until a had come back"


def test_records_that_may_be_written_are_in_doubt_when_the_client_cannot_say_who_it_is_any_more() -> None:
    """Its connection is lost for that; the request was sent, and the records' time is not over."""
    producer = ByHand("a")
    delivery = producer.send("a")
    producer.identify(7, 0)
    producer.connect()
    producer.lose(ApiKey.PRODUCE, SaslAuthenticationError("the token endpoint is away"))
    assert not delivery.done()
    producer.pass_time(1.0)
    assert producer.acknowledge().message is not None
    assert delivery.exception() is None


def test_without_sequences_one_request_at_a_time_keeps_the_order_also_when_the_leader_moves() -> None:
    producer = ByHand("a", enable_idempotence=False, max_in_flight_requests_per_connection=1)
    first = producer.send("a")
    producer.connect()
    lost = producer.asked(ApiKey.PRODUCE)
    second = producer.send("a")
    producer.know("a", leader=OTHER)
    producer.connect()
    assert producer.waiting(ApiKey.PRODUCE) == 0, "the second one would come before the first"
    producer.feed(producer.core.failed, lost.ticket, DisconnectedError("gone"))
    producer.pass_time(1.0)
    producer.acknowledge()
    assert (first.done(), second.done()) == (True, False)
    producer.acknowledge()
    assert second.done()


def asked_within(producer: ByHand, seconds: float) -> int:
    """How often metadata was asked for. Each time the answer is that there is no leader."""
    asked, until_s = 0, producer.now_s + seconds
    while producer.now_s < until_s:
        producer.pass_time(0.02)
        while producer.count(intents.RefreshMetadata):
            producer.take(intents.RefreshMetadata)
            asked += 1
            producer.know("a", leader=NO_LEADER)
    return asked


def test_a_missing_leader_is_asked_for_ever_more_seldom() -> None:
    producer = ByHand("a", delivery_timeout_ms=300_000)
    producer.send("a")
    producer.identify(7, 0)
    producer.know("a", leader=NO_LEADER)
    assert 3 <= asked_within(producer, 1) <= 5
    assert 50 <= asked_within(producer, 60) <= 75
    producer.know("a")  # there is one, and there is none again
    producer.know("a", leader=NO_LEADER)
    assert 3 <= asked_within(producer, 1) <= 5


def test_records_that_are_sent_after_a_quiet_time_find_their_leader_soon() -> None:
    """However long it was missing when others were sent."""
    producer = ByHand("a", delivery_timeout_ms=60_000)
    producer.send("a")
    producer.identify(7, 0)
    producer.know("a", leader=NO_LEADER)
    asked_within(producer, 61)
    assert asked_within(producer, 10) == 0, "they have timed out"
    producer.send("a")
    assert 3 <= asked_within(producer, 1) <= 5


def test_a_leader_that_is_found_gets_the_records_at_once() -> None:
    producer = ByHand("a", delivery_timeout_ms=300_000)
    delivery = producer.send("a")
    producer.identify(7, 0)
    producer.know("a", leader=NO_LEADER)
    asked_within(producer, 60)
    producer.know("a")
    producer.connect()
    producer.acknowledge()
    assert delivery.done()
