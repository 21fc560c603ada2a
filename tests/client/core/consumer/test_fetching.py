"""SPEC C3–C5: what is fetched from whom, and what an answer means. The whole core, in virtual time; no broker."""

from collections.abc import Mapping

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.intents import Channel, Connect, LearnLeader, NotSentError
from ottla.client.core.metadata import ClusterSnapshot, PartitionInfo
from ottla.client.errors import CorruptRecordsError, DisconnectedError, KafkaError, OffsetOutOfRangeError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.records import Record, encode_batch
from tests.client.core.consumer.rig import TOPIC_ID, Rig, snapshot

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
_OTHER_ID = b"u" * 16
_SESSION = 7


def batch(base: int, count: int = 1, epoch: int = -1) -> bytes:
    records = [Record(base + i, 1, None, b"v", ()) for i in range(count)]
    return encode_batch(records, base_offset=base, partition_leader_epoch=epoch)


def brought(partition: int, base: int, count: int = 1, epoch: int = -1) -> PartitionData:
    return PartitionData(partition, high_watermark=100, last_stable_offset=100, records=batch(base, count, epoch))


def refused(partition: int, code: int) -> PartitionData:
    return PartitionData(partition, error_code=code)


def fetched(*parts: PartitionData, session: int = _SESSION) -> FetchResponse:
    return FetchResponse(session_id=session, responses=(FetchableTopicResponse(TOPIC_ID, "t", parts),))


def reading(
    *tps: TopicPartition, known: ClusterSnapshot | None = None, config: Mapping[str, object] | None = None
) -> Rig:
    """Partitions that are read from offset 0 on."""
    rig = Rig(config, known=known)
    rig.assign(*tps)
    for tp in tps:
        rig.state(tp).seek(0)
    rig.do(rig.core.positions_chosen)
    rig.asks = rig.asked(ApiKey.FETCH)  # nobody has to find the positions any more
    return rig


def offsets(request: FetchRequest) -> dict[tuple[str, int], int]:
    return {(topic.topic, p.partition): p.fetch_offset for topic in request.topics for p in topic.partitions}


def forgotten(request: FetchRequest) -> list[tuple[bytes, str, tuple[int, ...]]]:
    return [(topic.topic_id, topic.topic, topic.partitions) for topic in request.forgotten_topics_data]


def take(rig: Rig) -> list[int]:
    """The user takes what is here."""
    records = rig.core.buffer.take_records(1_000)
    rig.do(rig.core.taken)
    return [record.offset for record in records]


# what is asked


def test_c3_one_request_a_broker_has_all_its_partitions() -> None:
    rig = reading(A, B)
    assert offsets(rig.message(ApiKey.FETCH)) == {("t", 0): 0, ("t", 1): 0}
    rig.do(rig.core.look)
    assert len(rig.asked(ApiKey.FETCH)) == 1, "one at a time"


def test_c3_each_leader_is_asked_for_its_own_partitions() -> None:
    known = snapshot(t=2)
    parts = {0: PartitionInfo(1, 0), 1: PartitionInfo(2, 0)}
    known = known._replace(topics={"t": known.topics["t"]._replace(partitions=parts)})
    rig = reading(A, B, known=known)
    asked = {ask.to.node_id: offsets(ask.message) for ask in rig.asked(ApiKey.FETCH)}  # type: ignore[union-attr, arg-type]
    assert asked == {1: {("t", 0): 0}, 2: {("t", 1): 0}}


def test_c3_two_fetches_of_a_partition_are_stored_at_most() -> None:
    rig = reading(A)
    rig.answer(ApiKey.FETCH, fetched(brought(0, 0)))
    rig.answer(ApiKey.FETCH, fetched(brought(0, 1)))
    assert not rig.asked(ApiKey.FETCH)
    assert take(rig) == [0, 1]
    assert rig.message(ApiKey.FETCH).session_epoch == 2


def test_c3_one_fetch_is_stored_when_it_fills_the_store() -> None:
    rig = reading(A, config={"fetch.max.bytes": 1})
    rig.answer(ApiKey.FETCH, fetched(brought(0, 0)))
    assert not rig.asked(ApiKey.FETCH)


def stored(rig: Rig) -> int:
    return sum(state.buffered_bytes for state in rig.core.positions)


def serve(rig: Rig) -> None:
    """Answer a fetch as a broker does that has more of every partition, and no fetch sessions."""
    request: FetchRequest = rig.message(ApiKey.FETCH)
    given = list(offsets(request).items())[: request.max_bytes // len(batch(0))]
    rig.answer(ApiKey.FETCH, fetched(*(brought(number, base) for (_, number), base in given), session=0))


def many(count: int, held: int) -> Rig:
    """So many partitions, and a `fetch.max.bytes` of so many batches of a record each."""
    tps = [TopicPartition("t", number) for number in range(count)]
    return reading(*tps, known=snapshot(t=count), config={"fetch.max.bytes": held * len(batch(0))})


def test_c3_what_is_stored_is_bounded_however_many_partitions_there_are() -> None:
    rig, most = many(100, held=10), 0
    found: dict[int, int] = dict.fromkeys(range(100), 0)
    for _ in range(60):
        while rig.asked(ApiKey.FETCH):
            serve(rig)
            most = max(most, stored(rig))
        for record in rig.core.buffer.take_records(7):
            found[record.partition] += 1
        rig.do(rig.core.taken)
    assert most < 2 * 10 * len(batch(0)), "nearly a full store, and one more fetch"
    assert max(found.values()) - min(found.values()) <= 1, "every partition has its turn"
    assert sum(found.values()) == 60 * 7


@pytest.mark.parametrize("stays", ["paused", "damaged"])
def test_c3_what_may_stay_for_ever_does_not_stop_the_others(stays: str) -> None:
    rig = many(2, held=1)
    bad = brought(0, 0)._replace(records=batch(0) + bytes(300))
    rig.answer(ApiKey.FETCH, fetched(brought(0, 0) if stays == "paused" else bad, session=0))
    if stays == "paused":
        assert not rig.asked(ApiKey.FETCH)
        rig.state(A).paused = True
        rig.do(rig.core.look)
    assert offsets(rig.message(ApiKey.FETCH)) == {("t", 1): 0}


def test_c3_a_broker_that_has_a_full_partition_too_is_asked_for_a_short_time() -> None:
    rig = reading(A, B)
    assert rig.message(ApiKey.FETCH).max_wait_ms == 500
    rig.answer(ApiKey.FETCH, fetched(brought(0, 0)))
    rig.answer(ApiKey.FETCH, fetched(brought(0, 1)))
    assert rig.message(ApiKey.FETCH).max_wait_ms == 20


def test_c3_a_paused_partition_is_not_fetched_and_its_session_forgets_it() -> None:
    rig = reading(A, B)
    rig.state(A).paused = True
    rig.answer(ApiKey.FETCH, fetched())
    assert forgotten(rig.message(ApiKey.FETCH)) == [(TOPIC_ID, "t", (0,))]
    rig.state(A).paused = False
    rig.answer(ApiKey.FETCH, fetched())
    assert offsets(rig.message(ApiKey.FETCH)) == {("t", 0): 0}


def test_c3_a_partition_of_a_topic_that_is_not_subscribed_any_more_is_not_fetched_and_its_records_stay() -> None:
    rig = reading(A, B)
    rig.answer(ApiKey.FETCH, fetched(brought(0, 0)))
    rig.state(A).unwanted = True
    rig.answer(ApiKey.FETCH, fetched())
    assert forgotten(rig.message(ApiKey.FETCH)) == [(TOPIC_ID, "t", (0,))]
    assert rig.core.buffer.take_records(10) == []
    rig.state(A).unwanted = False
    assert [record.partition for record in rig.core.buffer.take_records(1)] == [0]


def test_c3_nothing_is_fetched_without_a_position() -> None:
    rig = Rig()
    rig.assign(A)
    assert rig.asked(ApiKey.LIST_OFFSETS)
    assert not rig.asked(ApiKey.FETCH)


def test_c3_a_partition_without_a_leader_waits_for_metadata() -> None:
    rig = reading(A, known=snapshot(leader=-1, t=1))
    assert not rig.asked(ApiKey.FETCH)
    rig.learn(snapshot(t=1))
    assert offsets(rig.message(ApiKey.FETCH)) == {("t", 0): 0}


def test_c3_a_fetch_waits_for_its_connection() -> None:
    rig = reading(A)
    rig.fail(ApiKey.FETCH, NotSentError("gone"))
    rig.do(rig.core.disconnected, 1, Channel.FETCH)
    rig.intended.clear()
    assert not rig.asked(ApiKey.FETCH), "not at once"
    rig.wait(0.2)
    assert any(isinstance(intent, Connect) for intent in rig.intended)
    assert rig.message(ApiKey.FETCH).session_epoch == 0


# sessions


def test_c5_only_what_changed_is_asked_again() -> None:
    rig = reading(A, B)
    rig.answer(ApiKey.FETCH, fetched(brought(0, 0)))
    request = rig.message(ApiKey.FETCH)
    assert (request.session_id, request.session_epoch, offsets(request)) == (_SESSION, 1, {("t", 0): 1})


def test_c5_a_session_forgets_a_topic_that_this_client_knows_no_more_by_its_id() -> None:
    known = snapshot(t=1, u=1)
    known = known._replace(topics={**known.topics, "u": known.topics["u"]._replace(topic_id=_OTHER_ID)})
    rig = reading(A, TopicPartition("u", 0), known=known)
    rig.answer(ApiKey.FETCH, fetched())
    rig.assign(A)  # while a fetch of both is under way
    rig.learn(known.without(["u"]))
    rig.answer(ApiKey.FETCH, fetched())
    assert forgotten(rig.message(ApiKey.FETCH)) == [(_OTHER_ID, "u", (0,))]


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_c5_a_session_that_the_broker_has_lost_begins_anew_at_once(code: ErrorCode) -> None:
    rig = reading(A, B)
    rig.answer(ApiKey.FETCH, fetched(brought(0, 0)))
    rig.answer(ApiKey.FETCH, FetchResponse(error_code=code))
    request = rig.message(ApiKey.FETCH)
    assert (request.session_epoch, offsets(request)) == (0, {("t", 0): 1, ("t", 1): 0})
    assert not rig.raised()


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorCode.UNKNOWN_TOPIC_ID])
def test_c5_after_another_error_the_broker_gets_a_pause_and_a_new_session(code: ErrorCode) -> None:
    rig = reading(A)
    rig.answer(ApiKey.FETCH, fetched())
    rig.answer(ApiKey.FETCH, FetchResponse(error_code=code))
    assert not rig.asked(ApiKey.FETCH)
    rig.wait(0.2)
    request = rig.message(ApiKey.FETCH)
    assert (request.session_epoch, offsets(request)) == (0, {("t", 0): 0})
    assert not rig.raised()


def test_c5_a_session_is_not_left_behind_on_the_broker() -> None:
    rig = reading(A)
    rig.answer(ApiKey.FETCH, fetched())
    rig.fail(ApiKey.FETCH, DisconnectedError("gone"))
    rig.wait(0.2)
    request = rig.message(ApiKey.FETCH)
    assert (request.session_id, request.session_epoch) == (_SESSION, 0), "it is closed by what opens the next one"


def test_c5_an_error_of_the_whole_answer_that_stays_is_told() -> None:
    rig = reading(A)
    rig.answer(ApiKey.FETCH, FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    [error] = rig.raised()
    assert isinstance(error, KafkaError)


@pytest.mark.parametrize(
    "answer",
    [FetchResponse(error_code=ErrorCode.REQUEST_TIMED_OUT), fetched(refused(0, ErrorCode.REQUEST_TIMED_OUT))],
    ids=["whole", "partition"],
)
def test_c5_what_kafka_calls_retriable_is_asked_for_again_and_not_told(answer: FetchResponse) -> None:
    rig = reading(A)
    rig.answer(ApiKey.FETCH, answer)
    assert rig.raised() == []
    rig.wait(0.2)
    assert rig.asked(ApiKey.FETCH)


def test_c5_a_topic_made_anew_gets_a_new_session() -> None:
    rig = reading(A)
    rig.answer(ApiKey.FETCH, fetched())
    old = rig.take(ApiKey.FETCH)
    fresh = snapshot(t=2)
    rig.learn(fresh._replace(topics={"t": fresh.topics["t"]._replace(topic_id=_OTHER_ID)}))
    rig.do(rig.core.answered, old.ticket, fetched())
    request = rig.message(ApiKey.FETCH)
    assert (request.session_epoch, [topic.topic_id for topic in request.topics]) == (0, [_OTHER_ID])


# answers


def test_c3_what_was_sought_meanwhile_is_void_and_the_rest_of_the_answer_is_not() -> None:
    rig = reading(A, B)
    asked = rig.take(ApiKey.FETCH)
    rig.state(A).seek(50)
    rig.do(rig.core.positions_chosen)
    rig.do(rig.core.answered, asked.ticket, fetched(brought(0, 0, 3), brought(1, 0, 2)))
    assert take(rig) == [0, 1]
    assert (rig.state(A).position, rig.state(B).position) == (50, 2)


def test_c3_what_was_not_asked_for_is_left_alone() -> None:
    rig = reading(A)
    rig.answer(ApiKey.FETCH, fetched(brought(1, 0), brought(9, 0), brought(0, 0), brought(0, 0)))
    assert take(rig) == [0]


def test_c3_a_position_out_of_range_is_replaced_when_what_is_stored_was_taken() -> None:
    rig = reading(A)
    rig.answer(ApiKey.FETCH, fetched(brought(0, 0)))
    rig.answer(ApiKey.FETCH, fetched(refused(0, ErrorCode.OFFSET_OUT_OF_RANGE)))
    assert not rig.asked(ApiKey.LIST_OFFSETS), "what is stored is good"
    assert take(rig) == [0]
    rig.wait(0.2)
    rig.answer(ApiKey.FETCH, fetched(refused(0, ErrorCode.OFFSET_OUT_OF_RANGE)))
    assert rig.asked(ApiKey.LIST_OFFSETS)


def test_c3_a_position_out_of_range_without_a_policy_is_told_until_the_user_seeks() -> None:
    rig = reading(A, config={"auto.offset.reset": "none"})
    for _ in range(2):
        rig.answer(ApiKey.FETCH, fetched(refused(0, ErrorCode.OFFSET_OUT_OF_RANGE)))
        rig.answer(
            ApiKey.LIST_OFFSETS,
            ListOffsetsResponse(topics=(ListOffsetsTopicResponse("t", (ListOffsetsPartitionResponse(0, offset=9),)),)),
        )
        assert [type(error) for error in rig.raised()] == [OffsetOutOfRangeError]
        rig.wait(1.1)
    rig.state(A).seek(3)
    rig.take(ApiKey.FETCH)
    rig.do(rig.core.positions_chosen)
    assert not rig.raised()


def test_c3_a_leader_that_an_answer_names_is_learned() -> None:
    rig = reading(A, known=snapshot(4, t=1))
    moved = refused(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)._replace(current_leader=LeaderIdAndEpoch(2, 5))
    answer = fetched(moved)._replace(node_endpoints=(NodeEndpoint(2, "b", 1, None),))
    rig.answer(ApiKey.FETCH, answer)
    [learned] = [intent for intent in rig.intended if isinstance(intent, LearnLeader)]
    assert learned[:3] == (A, 2, 5)


@pytest.mark.parametrize("code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 9_999])
def test_c2_an_error_of_a_partition_comes_behind_its_records_and_is_asked_for_again(code: int) -> None:
    rig = reading(A)
    rig.answer(ApiKey.FETCH, fetched(brought(0, 0)))
    rig.answer(ApiKey.FETCH, fetched(refused(0, code)))
    assert take(rig) == [0]
    with pytest.raises(CorruptRecordsError if code == ErrorCode.CORRUPT_MESSAGE else KafkaError):
        take(rig)
    rig.wait(0.2)
    rig.do(rig.core.taken)
    assert rig.asked(ApiKey.FETCH)


def test_c2_a_batch_that_did_not_come_whole_is_told() -> None:
    rig = reading(A)
    part = brought(0, 0, 5)
    rig.answer(ApiKey.FETCH, fetched(part._replace(records=bytes(part.records or b"")[:-1])))
    with pytest.raises(KafkaError, match=r"t-0: the batch at offset 0 did not come whole: raise max\.partition"):
        take(rig)
    rig.do(rig.core.taken)
    assert not rig.asked(ApiKey.FETCH), "not at once"
    rig.wait(1.1)
    assert rig.asked(ApiKey.FETCH)


def test_c3_a_fetch_that_is_lost_is_asked_again_after_a_pause() -> None:
    rig = reading(A)
    rig.fail(ApiKey.FETCH, DisconnectedError("gone"))
    assert not rig.asked(ApiKey.FETCH)
    rig.wait(0.2)
    assert offsets(rig.message(ApiKey.FETCH)) == {("t", 0): 0}
    assert not rig.raised()


def test_o1_what_poll_is_about_to_return_is_not_committed() -> None:
    """The commit fell due while the records were decoded, and a position in question let everything advance."""
    rig = reading(A, known=snapshot(3, t=1), config={"group.id": "g", "enable.auto.commit": True})
    rig.answer(ApiKey.FETCH, fetched(brought(0, 0, 10, epoch=3)))
    assert len(rig.core.buffer.take_records(10)) == 10
    rig.core.buffer.handed_out()
    rig.do(rig.core.taken)
    for base in (10, 20):
        rig.answer(ApiKey.FETCH, fetched(brought(0, base, 10, epoch=3)))
    rig.learn(snapshot(4, 2, t=1))
    due_s = rig.core._commits.due_s
    assert due_s is not None and rig.core._validation.waits_for_taker
    rig.now_s = due_s - 0.05
    rig.core.polled(rig.now_s)
    rig.core.watch.in_poll = True
    rig.do(rig.core.poll)
    assert len(rig.core.buffer.take_records(10)) == 10
    rig.now_s += 0.1
    rig.do(rig.core.taken)
    assert rig.asked(ApiKey.OFFSET_COMMIT) == []
    rig.core.buffer.handed_out()
    rig.poll()
    (commit,) = rig.asked(ApiKey.OFFSET_COMMIT)
    assert [p.committed_offset for topic in commit.message.topics for p in topic.partitions] == [20]  # type: ignore[union-attr]


def test_what_was_fetched_before_a_seek_is_let_go_also_if_nobody_polls() -> None:
    rig = reading(A)
    for _ in range(5):
        while rig.asked(ApiKey.FETCH):
            rig.answer(ApiKey.FETCH, fetched(brought(0, rig.state(A).fetch_offset, 10)))
        assert len(rig.core.buffer._fetches) == rig.state(A).buffered_fetches > 0
        rig.state(A).seek(0)
        rig.do(rig.core.positions_chosen)
        assert len(rig.core.buffer._fetches) == 0
