"""A batch of `exactly_once` (SPEC T11): what counts as taken, where it began, and what a failed transaction returns."""

import re

import pytest

from ottla import (
    AbortableTransactionError,
    ConsumerRecord,
    IllegalStateError,
    KafkaError,
    SubscriptionPattern,
    TopicPartition,
)
from ottla.client.core.consumer.subscription import Wanted
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.exactly_once.batch import AnyBatch, not_delivered
from ottla.client.exactly_once.settings import settings
from ottla.wire.batch import TimestampType
from ottla.wire.errors import ErrorCode

_CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
_SETTINGS = settings(["t"], "out", "id", _CONFIG)
_OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(9), TopicPartition("t", 1): OffsetAndMetadata(3)}


def _record(partition: int, offset: int) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, 0, TimestampType.CREATE_TIME, None, b"", (), None)


def _batch() -> AnyBatch:
    return AnyBatch([_record(0, 5), _record(1, 2), _record(0, 8)], _OFFSETS, _SETTINGS)


def test_t11_records_count_as_taken_when_the_loop_gets_them() -> None:
    batch = _batch()
    assert (len(batch), batch.next_untaken) == (3, _record(0, 5))
    taking = iter(batch)
    next(taking)
    assert batch.next_untaken == _record(1, 2)
    assert next(iter(batch)) == _record(0, 5), "a second look begins anew"
    assert batch.next_untaken == _record(1, 2), "and takes nothing back"
    assert [record.offset for record in taking] == [2, 8]
    assert batch.next_untaken is None


def test_t11_all_at_once_or_the_rest_left_out_on_purpose() -> None:
    whole, rest = _batch(), _batch()
    assert [record.offset for record in whole.records] == [5, 2, 8]
    rest.skip_rest()
    assert whole.next_untaken is rest.next_untaken is None
    assert AnyBatch([], {}, _SETTINGS).next_untaken is None


def test_t11_a_batch_knows_where_it_began_in_each_partition() -> None:
    assert _batch().starts == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 2}


def test_t11_a_batch_that_is_over_is_not_aborted() -> None:
    batch = _batch()
    batch.abort()
    assert batch.aborted
    batch.end("it was committed")
    with pytest.raises(IllegalStateError, match=r"this batch is over \(it was aborted\)"):
        batch.abort()


def _failed(code: ErrorCode) -> AbortableTransactionError:
    error = AbortableTransactionError("the transaction failed")
    error.__cause__ = KafkaError.of(code)
    return error


def test_t11_a_loop_whose_transaction_has_failed_goes_on_if_the_batch_will_be_done_again() -> None:
    error = _failed(ErrorCode.TRANSACTION_ABORTABLE)
    delivery = not_delivered("out", error)
    assert delivery.done()
    assert delivery.exception() is error
    with pytest.raises(AbortableTransactionError):
        delivery.result(0)
    with pytest.raises(AbortableTransactionError):
        not_delivered("out", _failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED))


@pytest.mark.parametrize("source", [["t", "u"], re.compile("[tu]"), SubscriptionPattern("t|u|out")])
def test_t11_a_record_goes_back_to_the_source_only_if_that_is_said(source: Wanted) -> None:
    batch = AnyBatch([_record(0, 5)], _OFFSETS, settings(source, "out", "id", _CONFIG))
    assert batch._destination(None, to_source=False) == "out"
    assert batch._destination("other", to_source=False) == "other"
    with pytest.raises(
        ValueError, match="the topic t is a source of this loop: what is written there is worked on again"
    ):
        batch._destination("t", to_source=False)
    assert batch._destination("t", to_source=True) == "t"
    if not isinstance(source, SubscriptionPattern):  # what that matches is seen when it comes
        with pytest.raises(ValueError, match="the topic u is a source"):
            batch._destination("u", to_source=False)


def test_t11_a_sink_that_only_the_brokers_knew_for_a_source_is_refused_when_its_records_come() -> None:
    wanted = settings(SubscriptionPattern("t|out"), "out", "id", _CONFIG)
    batch = AnyBatch([_record(0, 5)], {TopicPartition("out", 0): OffsetAndMetadata(1)}, wanted)
    with pytest.raises(ValueError, match="the topic out is a source of this loop"):
        batch._destination(None, to_source=False)
    assert batch._destination(None, to_source=True) == "out"
