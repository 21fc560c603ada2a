"""Which open transactions hang (SPEC T14): three looks, and what may happen between them."""

import pytest

from ottla import TopicPartition
from ottla.client.admin.open_transactions import OpenTransaction, made_up_ids, open_in, still_open, with_coordinators
from ottla.client.admin.types import ProducerDescription, TransactionDescription
from ottla.wire.hashing import coordinator_partition

_T0, _T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def _producer(producer_id: int, start_offset: int, epoch: int = 0) -> ProducerDescription:
    return ProducerDescription(producer_id, epoch, 3, 1_000, -1, start_offset)


def _described(*partitions: TopicPartition, state: str = "Ongoing", producer_id: int = 7) -> TransactionDescription:
    return TransactionDescription("tx", state, producer_id, 0, 60_000, 500, frozenset(partitions))


def _open(tp: TopicPartition, start_offset: int, producer_id: int = 7) -> OpenTransaction:
    return OpenTransaction(tp, start_offset, producer_id, 0, -1, 1_000)


def test_t14_what_is_open_is_in_order_and_what_is_not_is_left_out() -> None:
    producers = {_T1: [_producer(8, 4), _producer(9, -1), _producer(7, 2)], _T0: [_producer(7, 0)]}
    assert open_in(producers) == [_open(_T0, 0), _open(_T1, 2), _open(_T1, 4, 8)]


@pytest.mark.parametrize("partitions", [1, 2, 31, 50, 961, 1_000])
def test_t14_there_is_an_id_to_ask_each_coordinator_for(partitions: int) -> None:
    ids = made_up_ids(partitions)
    assert list(ids.values()) == list(range(partitions))
    assert all(coordinator_partition(each, partitions) == number for each, number in ids.items())


def test_t14_a_partition_that_the_coordinator_has_does_not_hang() -> None:
    for state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        (found,) = with_coordinators([_open(_T0, 0)], {7: "tx"}, {"tx": _described(_T0, state=state)})
        assert (found.is_hanging, found.transactional_id, found.state) == (False, "tx", state)
        assert (found.timeout_ms, found.since_ms) == (60_000, 500)


def test_t14_what_no_coordinator_has_hangs_if_it_is_open_still() -> None:
    elsewhere, nowhere, forgotten = _open(_T0, 0), _open(_T0, 3, 8), _open(_T1, 1, 9)
    judged = with_coordinators([elsewhere, nowhere, forgotten], {7: "tx", 9: "gone"}, {"tx": _described(_T1)})
    assert [each.is_hanging for each in judged] == [True] * 3
    assert [(each.transactional_id, each.state, each.since_ms) for each in judged] == [
        ("tx", "Ongoing", None),
        (None, None, None),
        (None, None, None),
    ]
    again = {_T0: [_producer(7, 0), _producer(8, 3)], _T1: [_producer(9, 1)]}
    assert still_open(judged, again) == judged


def test_t14_what_has_ended_or_begun_anew_between_the_looks_does_not_hang() -> None:
    judged = with_coordinators([_open(_T0, 0)], {}, {})
    assert still_open(judged, {}) == []
    assert still_open(judged, {_T0: [_producer(7, -1)]}) == []
    assert still_open(judged, {_T0: [_producer(7, 5)]}) == []
    assert still_open(judged, {_T0: [_producer(7, 0, epoch=1)]}) == [], "a newer epoch has taken it over"
