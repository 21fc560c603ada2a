"""P2: producer ids come in blocks of 1,000, durable before use, never twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.decision import NOTHING, LogRecord
from ottla.coordinator.producer_ids import PREFETCH_BELOW, PRODUCER_ID_BLOCK_SIZE, ProducerIds
from ottla.wire.errors import ErrorCode
from ottla.wire.producer_ids_record import ProducerIdsRecord, decode_producer_ids, encode_producer_ids

NOW_MS = 1_700_000_000_000


def test_p2_no_id_before_its_block_is_durable() -> None:
    ids = ProducerIds(broker_id=1, broker_epoch=12)
    assert ids.wants_block
    assert ids.next_producer_id() is None
    decision = ids.reserve()
    assert decision.records == (LogRecord(b"", encode_producer_ids(ProducerIdsRecord(1, 12, 1_000))),)
    assert ids.next_producer_id() is None
    assert ids.reserve() == NOTHING
    ids.apply(decision.records[0], NOW_MS)
    assert [ids.next_producer_id() for _ in range(1_001)] == [*range(1_000), None]


def test_p2_next_block_is_wanted_before_the_last_id_is_gone() -> None:
    ids = ProducerIds(broker_id=1)
    ids.apply(ids.reserve().records[0], NOW_MS)
    for _ in range(PRODUCER_ID_BLOCK_SIZE - PREFETCH_BELOW - 1):
        ids.next_producer_id()
    wanted = ids.wants_block
    ids.next_producer_id()
    assert (wanted, ids.wants_block) == (False, True)
    ids.apply(ids.reserve().records[0], NOW_MS)
    assert [ids.next_producer_id() for _ in range(PREFETCH_BELOW + 1)] == [*range(900, 1_001)]


def test_p2_a_block_that_was_not_appended_is_asked_for_again() -> None:
    ids = ProducerIds(broker_id=1)
    first = ids.reserve()
    ids.append_failed(first, ErrorCode.KAFKA_STORAGE_ERROR)
    assert ids.next_producer_id() is None
    assert ids.reserve() == first


def test_p2_blocks_of_another_broker_are_skipped() -> None:
    ids = ProducerIds(broker_id=1)
    ids.apply(LogRecord(b"", encode_producer_ids(ProducerIdsRecord(2, -1, 5_000))), NOW_MS)
    assert ids.next_producer_id() is None
    ids.apply(ids.reserve().records[0], NOW_MS)
    assert ids.next_producer_id() == 5_000
    again = ids.reserve().records[0]
    ids.apply(again, NOW_MS)
    assert decode_producer_ids(again.value or b"").next_producer_id == 7_000


@given(st.lists(st.sampled_from(["take", "reserve", "crash", "lose the append"]), max_size=60))
def test_p2_never_twice_over_crashes(steps: list[str]) -> None:
    log: list[LogRecord] = []
    ids = ProducerIds(broker_id=1)
    taken: list[int] = []
    for step in steps:
        if step == "take":
            found = [ids.next_producer_id() for _ in range(400)]
            taken += [producer_id for producer_id in found if producer_id is not None]
        elif step == "reserve":
            for record in ids.reserve().records:
                log.append(record)
                ids.apply(record, NOW_MS)
        elif step == "lose the append":
            ids.append_failed(ids.reserve(), ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            ids = ProducerIds(broker_id=1)
            for record in log:
                ids.apply(record, NOW_MS)
    assert len(taken) == len(set(taken))
    assert taken == sorted(taken)
