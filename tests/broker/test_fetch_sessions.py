"""Incremental fetch sessions (KIP-227)."""

from random import Random

from ottla.base.clock import ManualClock
from ottla.broker.fetch_sessions import FetchContext, FetchSessions, PartitionKey
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic


def _request(session_id: int, epoch: int, *partitions: int, forget: tuple[int, ...] = ()) -> FetchRequest:
    topics = (FetchTopic(topic="t", partitions=tuple(FetchPartition(number) for number in partitions)),)
    forgotten = (ForgottenTopic(topic="t", partitions=forget),) if forget else ()
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=topics if partitions else (),
        forgotten_topics_data=forgotten,
    )


def _opened(sessions: FetchSessions, request: FetchRequest) -> FetchContext:
    context = sessions.open(request, uses_topic_ids=False)
    assert isinstance(context, FetchContext)
    return context


def _numbers(context: FetchContext) -> list[int]:
    return [key.partition for key, _ in context.partitions]


def test_a_sessionless_fetch_leaves_nothing_behind() -> None:
    sessions = FetchSessions(10, ManualClock(), Random(1))
    context = _opened(sessions, _request(0, -1, 0, 1))
    assert context.session_id == 0
    assert _numbers(context) == [0, 1]
    assert len(sessions) == 0


def test_later_requests_of_a_session_carry_only_changes() -> None:
    sessions = FetchSessions(10, ManualClock(), Random(1))
    session_id = _opened(sessions, _request(0, 0, 0, 1)).session_id
    assert session_id > 0
    assert _numbers(_opened(sessions, _request(session_id, 1))) == [0, 1]
    assert _numbers(_opened(sessions, _request(session_id, 2, 2, forget=(0,)))) == [1, 2]


def test_wrong_epoch_and_unknown_session_are_refused() -> None:
    sessions = FetchSessions(10, ManualClock(), Random(1))
    session_id = _opened(sessions, _request(0, 0, 0)).session_id
    assert sessions.open(_request(session_id, 5), uses_topic_ids=False) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.open(_request(session_id + 1, 1), uses_topic_ids=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.open(_request(session_id, 1), uses_topic_ids=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_a_session() -> None:
    sessions = FetchSessions(10, ManualClock(), Random(1))
    session_id = _opened(sessions, _request(0, 0, 0)).session_id
    _opened(sessions, _request(session_id, -1, 0))
    assert len(sessions) == 0


def test_a_full_cache_answers_without_a_session_until_one_is_idle() -> None:
    clock = ManualClock()
    sessions = FetchSessions(1, clock, Random(1))
    first = _opened(sessions, _request(0, 0, 0)).session_id
    assert _opened(sessions, _request(0, 0, 0)).session_id == 0
    clock.advance(120_000)
    second = _opened(sessions, _request(0, 0, 0)).session_id
    assert second not in (0, first)
    assert len(sessions) == 1


def test_only_news_is_told_again() -> None:
    sessions = FetchSessions(10, ManualClock(), Random(1))
    full = _opened(sessions, _request(0, 0, 0))
    _, cached = full.partitions[0]
    assert full.is_news(cached, 10, 0)
    later = _opened(sessions, _request(full.session_id, 1))
    assert not later.is_news(cached, 10, 0)
    assert later.is_news(cached, 11, 0)


def test_who_was_served_comes_last_next_time() -> None:
    sessions = FetchSessions(10, ManualClock(), Random(1))
    full = _opened(sessions, _request(0, 0, 0, 1, 2))
    full.served(PartitionKey(NULL_UUID, "t", 0))
    assert _numbers(_opened(sessions, _request(full.session_id, 1))) == [1, 2, 0]
