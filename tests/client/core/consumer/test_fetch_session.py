"""SPEC C5: incremental fetch sessions (KIP-227)."""

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.fetch_session import FetchSession
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID = b"i" * 16


def wanted(**offsets: int) -> dict[TopicPartition, tuple[bytes, FetchPartition]]:
    named = {"a": A, "b": B}
    return {named[n]: (ID, FetchPartition(named[n].partition, 0, offset)) for n, offset in offsets.items()}


def test_c5_the_first_fetch_asks_for_a_session_with_everything() -> None:
    request = FetchSession().build(wanted(a=1, b=2))
    assert (request.session_id, request.epoch, set(request.partitions)) == (0, 0, {A, B})


def test_c5_later_fetches_say_only_what_changed() -> None:
    session = FetchSession()
    session.build(wanted(a=1, b=2))
    session.answered(ErrorCode.NONE, 9)
    request = session.build(wanted(a=1, b=5))
    assert (request.session_id, request.epoch, set(request.partitions), request.forgotten) == (9, 1, {B}, {})
    session.answered(ErrorCode.NONE, 9)
    request = session.build(wanted(a=1))
    assert (request.epoch, request.partitions, request.forgotten) == (2, {}, {B: ID})


def test_c5_a_lost_session_begins_anew() -> None:
    session = FetchSession()
    session.build(wanted(a=1))
    session.answered(ErrorCode.NONE, 9)
    session.build(wanted(a=1))
    session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    request = session.build(wanted(a=1))
    assert (request.session_id, request.epoch, set(request.partitions)) == (0, 0, {A})


def test_c5_a_broker_without_sessions_gets_whole_requests() -> None:
    session = FetchSession()
    session.build(wanted(a=1))
    session.answered(ErrorCode.NONE, 0)
    assert set(session.build(wanted(a=1)).partitions) == {A}


def test_c5_a_topic_made_anew_is_noticed() -> None:
    session = FetchSession()
    session.build(wanted(a=1))
    assert not session.made_anew(wanted(a=2))
    assert session.made_anew({A: (b"j" * 16, FetchPartition(0, 0, 1))})
