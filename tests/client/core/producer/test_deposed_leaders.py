"""SPEC P3: a leader that was deposed, and has not heard of it, refuses what its successor has written already.

It says OUT_OF_ORDER_SEQUENCE_NUMBER, because it does not have the batches before. When the first answer about the batch
was lost, a new number would have it written twice.
"""

import pytest

from ottla.client.core import intents
from ottla.client.core.producer.identity import ProducerIdentity
from ottla.client.errors import DisconnectedError, RecordTooLargeError, RequestTimeoutError
from ottla.client.producer.delivery import Delivery
from ottla.wire.apis import ApiKey
from ottla.wire.batch import parse_header
from ottla.wire.errors import ErrorCode
from tests.client.core.producer.by_hand import BROKER, OTHER, ByHand

LOST = DisconnectedError("the connection broke")
GAPS = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]


def number(ask: intents.Ask) -> tuple[ProducerIdentity, int]:
    """Identity and sequence of the one batch in a request."""
    [topic] = ask.message.topic_data  # type: ignore[union-attr]
    [part] = topic.partition_data
    header = parse_header(bytes(part.records))
    return ProducerIdentity(header.producer_id, header.producer_epoch), header.base_sequence


def begun(**config: object) -> ByHand:
    """A producer whose first batch BROKER has acknowledged."""
    producer = ByHand("a", **config)
    producer.send("a")
    producer.identify(7, 0)
    producer.connect()
    producer.acknowledge()
    return producer


def lost_at(producer: ByHand, leader: int) -> Delivery:
    """A record that was sent to `leader`, and no answer came."""
    producer.know("a", leader=leader)
    delivery = producer.send("a")
    if leader == OTHER:
        producer.connect()
    producer.lose(ApiKey.PRODUCE, LOST)
    return delivery


@pytest.mark.parametrize("gap", GAPS, ids=lambda code: code.name)
def test_a_batch_in_doubt_keeps_its_number(gap: ErrorCode) -> None:
    producer = begun()
    delivery = lost_at(producer, OTHER)
    producer.know("a", leader=BROKER)
    for _ in range(3):
        producer.pass_time(1.0)
        asked_before = producer.count(intents.RefreshMetadata)
        assert number(producer.acknowledge(gap)) == (ProducerIdentity(7, 0), 1)
        assert producer.count(intents.RefreshMetadata) > asked_before, "there may be a new leader"
    producer.know("a", leader=OTHER)
    producer.pass_time(1.0)
    assert number(producer.acknowledge()) == (ProducerIdentity(7, 0), 1)
    assert delivery.exception() is None


@pytest.mark.parametrize("gap", GAPS, ids=lambda code: code.name)
def test_who_had_the_batch_before_and_has_lost_it_is_believed(gap: ErrorCode) -> None:
    """A single broker whose machine has lost its power: nobody else can have the batch."""
    producer = begun()
    delivery = lost_at(producer, BROKER)
    producer.pass_time(1.0)
    assert number(producer.acknowledge(gap)) == (ProducerIdentity(7, 0), 1)
    producer.pass_time(1.0)
    assert number(producer.acknowledge()) == (ProducerIdentity(7, 1), 0)
    assert delivery.exception() is None


def test_a_batch_that_every_leader_has_refused_gets_a_new_number_at_once() -> None:
    producer = begun()
    producer.know("a", leader=OTHER)
    delivery = producer.send("a")
    producer.connect()
    producer.acknowledge(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    producer.pass_time(1.0)
    assert number(producer.acknowledge()) == (ProducerIdentity(7, 1), 0)
    assert delivery.exception() is None


def test_in_the_end_it_is_given_up_and_the_next_batch_begins_a_new_epoch() -> None:
    producer = begun(delivery_timeout_ms=5_000, request_timeout_ms=4_000)
    delivery = lost_at(producer, OTHER)
    producer.know("a", leader=BROKER)
    while not delivery.done():
        producer.pass_time(1.0)
        if producer.waiting(ApiKey.PRODUCE):
            assert number(producer.acknowledge(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)) == (ProducerIdentity(7, 0), 1)
    assert isinstance(delivery.exception(), RequestTimeoutError)
    following = producer.send("a")
    assert number(producer.acknowledge()) == (ProducerIdentity(7, 1), 0)
    assert following.exception() is None


def test_a_record_that_is_refused_behind_it_proves_nothing() -> None:
    producer = begun()
    producer.know("a", leader=OTHER)
    in_doubt, too_large = producer.send("a"), producer.append("a")
    producer.connect()
    producer.feed(producer.core.flush)
    producer.lose(ApiKey.PRODUCE, LOST)
    producer.acknowledge(ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(too_large.exception(), RecordTooLargeError)
    producer.know("a", leader=BROKER)
    for code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE):
        producer.pass_time(1.0)
        assert number(producer.acknowledge(code)) == (ProducerIdentity(7, 0), 1)
    assert in_doubt.exception() is None
    following = producer.send("a")
    assert number(producer.acknowledge()) == (ProducerIdentity(7, 1), 0)
    assert following.exception() is None
