"""Incremental fetch sessions (KIP-227)."""

import asyncio
from random import Random

from ottla.base.clock import ManualClock
from ottla.broker.connections import Connections
from ottla.broker.fetch_sessions import FetchContext, FetchSessions, PartitionKey
from ottla.broker.handlers.dispatch import Dispatcher
from ottla.broker.handlers.fetch import AT_ONCE
from ottla.broker.listening import Listener
from ottla.broker.session import Session
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import encode_request
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.broker.lone_connections import LoneClient
from tests.broker.ticking import TickingClock

_MAX = 100
_MAX_OF_ONE = 30


def _request(session_id: int, epoch: int, *partitions: int, forget: tuple[int, ...] = ()) -> FetchRequest:
    topics = (FetchTopic(topic="t", partitions=tuple(FetchPartition(number) for number in partitions)),)
    forgotten = (ForgottenTopic(topic="t", partitions=forget),) if forget else ()
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=topics if partitions else (),
        forgotten_topics_data=forgotten,
    )


def _opened(sessions: FetchSessions, request: FetchRequest, connection: Session | None = None) -> FetchContext:
    context = sessions.open(request, uses_topic_ids=False, connection=connection)
    assert isinstance(context, FetchContext)
    for _ in sessions.fill(context):
        pass
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


def _full(sessions: FetchSessions, connection: Session | None = None) -> list[int]:
    """As many partitions as may be cached, in sessions as large as may be; the ids of these."""
    part = range(_MAX // 10)
    return [_opened(sessions, _request(0, 0, *part), connection).session_id for _ in range(10)]


def test_a_session_that_becomes_too_large_ends() -> None:
    """It grew by 29,000 partitions with each request, also by those of topics that are not there."""
    sessions = FetchSessions(10, ManualClock(), Random(1), max_of_one=_MAX_OF_ONE)
    assert _opened(sessions, _request(0, 0, *range(_MAX_OF_ONE + 1))).session_id == 0
    most = range(_MAX_OF_ONE)
    session_id = _opened(sessions, _request(0, 0, *most)).session_id
    assert session_id
    assert len(_opened(sessions, _request(session_id, 1, *most[:10])).partitions) == _MAX_OF_ONE
    assert len(_opened(sessions, _request(session_id, 2, forget=(0,))).partitions) == _MAX_OF_ONE - 1
    _opened(sessions, _request(session_id, 3, 0))
    assert sessions.cached_partitions == _MAX_OF_ONE
    one_more = _request(session_id, 4, _MAX_OF_ONE)
    assert sessions.open(one_more, uses_topic_ids=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.cached_partitions) == (0, 0)


def test_all_sessions_together_have_so_many_partitions_at_most() -> None:
    clock = ManualClock()
    sessions = FetchSessions(100, clock, Random(1), max_partitions=_MAX)
    ids = _full(sessions)
    assert all(ids)
    assert _opened(sessions, _request(0, 0, 0)).session_id == 0
    assert sessions.open(_request(ids[0], 1, 99_999), uses_topic_ids=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert _opened(sessions, _request(0, 0, 0)).session_id, "the session that would have grown has ended"
    assert sessions.cached_partitions == _MAX * 9 // 10 + 1
    clock.advance(120_000)
    _opened(sessions, _request(ids[9], 1))
    assert all(_full(sessions)[:9]), "idle ones go"
    assert len(_opened(sessions, _request(ids[9], 2)).partitions) == _MAX // 10


def test_a_session_whose_connection_has_gone_goes_first() -> None:
    connection, other = Session("PLAINTEXT", "/"), Session("PLAINTEXT", "/")
    sessions = FetchSessions(2, ManualClock(), Random(1))
    kept = _opened(sessions, _request(0, 0, 0), other).session_id
    gone = _opened(sessions, _request(0, 0, 0), connection).session_id
    connection.is_gone = True
    assert _numbers(_opened(sessions, _request(gone, 1), connection)) == [0], "there is room for it"
    assert _opened(sessions, _request(0, 0, 0), other).session_id
    assert sessions.open(_request(gone, 2), uses_topic_ids=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert _numbers(_opened(sessions, _request(kept, 1), other)) == [0]


def test_a_session_that_did_not_hear_all_of_a_request_ends() -> None:
    sessions = FetchSessions(2, ManualClock(), Random(1))
    context = sessions.open(_request(0, 0, 0, 1), uses_topic_ids=False)
    assert isinstance(context, FetchContext)
    steps = sessions.fill(context)
    next(steps)
    assert sessions.cached_partitions >= 2
    del steps
    assert (len(sessions), sessions.cached_partitions) == (0, 0)


async def test_a_session_ends_whose_connection_was_lost_before_its_request_was_looked_at() -> None:
    async with AsyncBroker(clock=TickingClock()) as broker:
        connections = Connections(broker.node.clock, max_idle_ms=-1)
        dispatch, clock = Dispatcher(broker.node), broker.node.clock
        listener = Listener(dispatch, clock, connections, name="PLAINTEXT", max_request_bytes=1 << 20)
        sessions = broker.node.sessions
        for turns in range(4):
            client = LoneClient(listener)
            request = _request(0, 0, *range(AT_ONCE + 1))._replace(max_wait_ms=60_000, min_bytes=1)
            client.send_bytes(encode_request(ApiKey.FETCH, 11, 1, "x", request))
            for _ in range(turns):
                await asyncio.sleep(0)
            client.close()
            await broker.node.slices.close()
            counted = {each.counted - len(each.partitions) for each in sessions._sessions.values()}
            assert counted <= {0}, turns
            assert sessions.cached_partitions == sum(each.counted for each in sessions._sessions.values())


def test_a_large_request_is_taken_over_in_steps() -> None:
    sessions = FetchSessions(2, ManualClock(), Random(1))
    context = sessions.open(_request(0, 0, *range(1_000)), uses_topic_ids=False)
    assert isinstance(context, FetchContext)
    assert (context.size, context.partitions) == (1_000, [])
    assert sum(1 for _ in sessions.fill(context)) == 1_000
    assert (len(context.partitions), sessions.cached_partitions) == (1_000, 1_000)
