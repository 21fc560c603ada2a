"""Very many partitions in one fetch: each event of the core does a part of the work, so heartbeats come in between."""

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.fetching import AT_ONCE
from ottla.client.core.intents import RefreshMetadata
from ottla.wire.apis import ApiKey
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.records import Record, encode_batch
from tests.client.core.consumer.rig import TOPIC_ID, Rig, snapshot
from tests.counted_calls import calls

_MANY = 3 * AT_ONCE + 10
_EVERY = [TopicPartition("t", number) for number in range(_MANY)]
_RECORDS = encode_batch([Record(0, 1, None, b"v", ())])


def _reading() -> Rig:
    """All are read from offset 0 on, by one broker: it is asked, and has not answered."""
    rig = Rig(known=snapshot(t=_MANY)._replace(nodes={1: snapshot().nodes[1]}))
    rig.assign(*_EVERY)
    for tp in _EVERY:
        rig.state(tp).seek(0)
    rig.do(rig.core.positions_chosen)
    rig.asks = rig.asked(ApiKey.FETCH)
    return rig


def _answer(*numbers: int) -> FetchResponse:
    parts = tuple(PartitionData(n, high_watermark=1, last_stable_offset=1, records=_RECORDS) for n in numbers)
    return FetchResponse(session_id=7, responses=(FetchableTopicResponse(TOPIC_ID, "t", parts),))


def _read(rig: Rig) -> int:
    """Of how many partitions the answer was read."""
    return sum(rig.state(tp).fetch_offset == 1 for tp in _EVERY)


def test_an_answer_of_many_partitions_is_read_some_at_a_time_and_its_broker_asked_when_it_is_read() -> None:
    """One of 9,000 partitions kept the client's loop for 130 ms."""
    rig = _reading()
    rig.answer(ApiKey.FETCH, _answer(*range(_MANY)))
    seen = [_read(rig)]
    while not rig.asked(ApiKey.FETCH):
        assert rig.core.wake_at_s == rig.now_s, "it goes on at once"
        rig.do(rig.core.woken)
        seen.append(_read(rig))
    assert seen == [AT_ONCE, 2 * AT_ONCE, 3 * AT_ONCE, _MANY, _MANY]
    [ask] = rig.asked(ApiKey.FETCH)
    assert ask.is_large
    assert not isinstance(ask.message, tuple), "it is made when it is sent"
    [topic] = rig.message(ApiKey.FETCH).topics
    assert {part.fetch_offset for part in topic.partitions} == {1}


def test_a_request_has_the_leader_epochs_of_when_its_offsets_were_noted() -> None:
    """It had those of when it was sent: a new leader, whose log was cut and had grown again, answered it (KIP-320)."""
    rig = _reading()
    elected = snapshot(epoch=1, t=_MANY).topics["t"]
    rig.learn(rig.known._replace(topics={"t": elected._replace(topic_id=b"another topic id")}))
    [topic] = rig.message(ApiKey.FETCH).topics
    assert {part.current_leader_epoch for part in topic.partitions} == {0}
    assert topic.topic_id == TOPIC_ID


def test_what_is_sought_or_taken_away_while_an_answer_is_read_is_not_read_any_more() -> None:
    rig = _reading()
    rig.answer(ApiKey.FETCH, _answer(*range(_MANY)))
    sought, gone = _EVERY[-1], _EVERY[-2]
    rig.state(sought).seek(0)
    rig.core.positions.assign(tp for tp in _EVERY if tp != gone)
    rig.core.positions.assign(_EVERY)
    while not rig.asked(ApiKey.FETCH):
        rig.do(rig.core.woken)
    assert _read(rig) == _MANY - 2
    assert rig.state(sought).fetch_offset == 0


def test_to_take_records_goes_through_no_partitions_while_the_broker_has_a_fetch_to_answer() -> None:
    """Each poll looked at all of them: 5 ms for 9,000."""
    rig = _reading()
    assert calls(lambda: rig.do(rig.core.taken)) < AT_ONCE // 10
    rig.answer(ApiKey.FETCH, _answer(0))
    assert calls(lambda: rig.do(rig.core.taken)) < AT_ONCE // 10, "it comes behind the user's turn"
    assert rig.core.wake_at_s == rig.now_s


def test_a_leader_is_looked_for_while_the_only_broker_has_a_fetch_to_answer() -> None:
    rig = _reading()
    rig.learn(rig.known._replace(topics={"t": rig.known.topics["t"]._replace(partitions={})}))
    rig.refreshes.clear()
    before = len(rig.intended)
    rig.wait(10.0)
    rig.do(rig.core.taken)
    rig.do(rig.core.woken)
    assert any(isinstance(intent, RefreshMetadata) for intent in rig.intended[before:])
