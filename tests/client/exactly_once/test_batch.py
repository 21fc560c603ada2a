"""A batch of `exactly_once` (SPEC T11): what counts as taken, where it began, and what a failed transaction returns."""

import pytest

from ottla import AbortableTransactionError, ConsumerRecord, IllegalStateError, KafkaError, TopicPartition
from ottla.client.exactly_once.batch import AnyBatch, not_delivered
from ottla.wire.batch import TimestampType
from ottla.wire.errors import ErrorCode


def _record(partition: int, offset: int) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, 0, TimestampType.CREATE_TIME, None, b"", (), None)


def _batch() -> AnyBatch:
    return AnyBatch([_record(0, 5), _record(1, 2), _record(0, 8)], {})


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
    assert AnyBatch([], {}).next_untaken is None


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
