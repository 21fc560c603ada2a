"""KIP-580: how often a consumer asks for metadata that brings it nothing new, and how soon it hears of a new leader."""

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.intents import RefreshMetadata
from ottla.client.core.metadata import NO_LEADER
from ottla.client.errors import DisconnectedError
from ottla.wire.apis import ApiKey
from ottla.wire.messages.fetch import FetchResponse
from tests.client.core.consumer.rig import Rig, snapshot

A = TopicPartition("t", 0)
_STEP_S = 0.02


def reading(**config: object) -> Rig:
    rig = Rig(config, known=snapshot(3, t=1))
    rig.assign(A)
    rig.state(A).seek(5)
    rig.do(rig.core.positions_chosen)
    return rig


def refreshes(rig: Rig) -> int:
    return sum(isinstance(intent, RefreshMetadata) and intent.ticket is None for intent in rig.intended)


def asked_within(rig: Rig, seconds: float, epoch: int) -> int:
    """How often metadata was asked for. At first, and each time, the answer is that there is no leader."""
    before, answered, until_s = refreshes(rig), 0, rig.now_s + seconds
    while rig.now_s < until_s:
        if refreshes(rig) > answered:
            answered = refreshes(rig)
            rig.learn(snapshot(epoch, NO_LEADER, t=1))
        rig.wait(_STEP_S)
    return refreshes(rig) - before


@pytest.mark.parametrize("position", [5, None], ids=["a known position", "a position that is looked up"])
def test_a_missing_leader_is_asked_for_ever_more_seldom(position: int | None) -> None:
    rig = reading()
    if position is None:
        rig.state(A).seek_to_time(0)
    rig.learn(snapshot(4, NO_LEADER, t=1))
    assert 3 <= asked_within(rig, 1, epoch=4) <= 5
    assert 50 <= asked_within(rig, 60, epoch=4) <= 75


def test_news_of_a_partition_begin_with_short_pauses_again() -> None:
    rig = reading()
    rig.learn(snapshot(4, NO_LEADER, t=1))
    asked_within(rig, 60, epoch=4)
    rig.learn(snapshot(5, NO_LEADER, t=1))
    assert 3 <= asked_within(rig, 1, epoch=5) <= 5


def test_other_topics_are_no_news() -> None:
    rig = reading()
    rig.learn(snapshot(4, NO_LEADER, t=1))
    asked_within(rig, 60, epoch=4)
    before = refreshes(rig)
    for epoch in range(10):
        rig.wait(0.1)
        others = snapshot(epoch, u=1).topics
        rig.learn(rig.known._replace(topics={**rig.known.topics, **others}))
    assert refreshes(rig) - before <= 2


def test_a_leader_that_is_found_is_asked_at_once() -> None:
    rig = reading()
    rig.asks.clear()
    rig.learn(snapshot(4, NO_LEADER, t=1))
    asked_within(rig, 60, epoch=4)
    rig.learn(snapshot(5, 2, t=1))
    assert [ask.to.node_id for ask in rig.asked(ApiKey.FETCH)] == [2]  # type: ignore[union-attr]


def test_an_error_after_a_quiet_time_is_followed_by_short_pauses() -> None:
    """Else a leader that is elected now would be found late, because of errors an hour ago."""
    rig = reading()
    for quiet_s in [10.0] * 8 + [0.2, 0.2]:
        before = refreshes(rig)
        rig.answer(ApiKey.FETCH, FetchResponse())
        rig.fail(ApiKey.FETCH, DisconnectedError("away"))
        rig.wait(quiet_s)
        assert refreshes(rig) == before + 1


def test_without_a_pause_between_repetitions_a_missing_leader_is_waited_for_calmly() -> None:
    rig = reading(**{"retry.backoff.ms": 0, "retry.backoff.max.ms": 0})
    rig.learn(snapshot(4, NO_LEADER, t=1))
    assert asked_within(rig, 1, epoch=4) <= 100
