"""`consumer.events()`: what happens to a consumer, told alike in both protocols of groups (G23, O5)."""

from __future__ import annotations

import pytest

from ottla import (
    EventsDropped,
    Expelled,
    GenerationJoined,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    Rebalanced,
    TopicPartition,
)
from ottla.client.core.consumer.events import MAX_WAITING, ConsumerEvents
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatResponse
from tests.client.core.consumer.rig import Rig

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
_MEMBER = {"group.id": "g", "enable.auto.commit": False, "heartbeat.interval.ms": 1_000}


def _of_protocol(protocol: str) -> Rig:
    """A consumer that has subscribed."""
    own = {"group.id": "g", "enable.auto.commit": False, "group.protocol": "consumer"}
    rig = Rig(_MEMBER if protocol == "classic" else own)
    rig.subscribe("t")
    return rig


def _stable(rig: Rig, protocol: str) -> None:
    """The consumer becomes a member of generation 1, or epoch 1, and has T0, half a second after its first poll."""
    rig.poll()
    rig.wait(0.5)
    if protocol == "classic":
        rig.join(1)
        rig.sync(T0)
    else:
        rig.beat(1, T0)
    rig.poll()


def _expelled(rig: Rig, protocol: str) -> None:
    rig.wait(1.0)
    if protocol == "classic":
        rig.answer(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    else:
        rig.beat(0, code=ErrorCode.UNKNOWN_MEMBER_ID, target=False)
    rig.poll()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_g23_a_consumer_joins_and_is_told_how_long_it_took(protocol: str) -> None:
    rig = _of_protocol(protocol)
    _stable(rig, protocol)
    joined, assigned, rebalanced = rig.core.events.take()
    assert isinstance(joined, GenerationJoined)
    assert joined.generation_id == 1
    assert assigned == PartitionsAssigned((T0,), 1)
    assert isinstance(rebalanced, Rebalanced)
    assert rebalanced.duration_s == pytest.approx(0.5 if protocol == "classic" else 0.0)
    assert rig.core.events.take() == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_g23_an_expelled_consumer_is_told_why_and_what_it_lost(protocol: str) -> None:
    rig = _of_protocol(protocol)
    _stable(rig, protocol)
    if protocol == "consumer":
        rig.beat(1, target=False)  # it has acknowledged what it has
    rig.core.events.take()
    _expelled(rig, protocol)
    expelled, lost = rig.core.events.take()
    assert isinstance(expelled, Expelled)
    assert expelled.reason.endswith("was answered UNKNOWN_MEMBER_ID")
    assert lost == PartitionsLost((T0,))


def test_g23_an_eager_consumer_gives_everything_up_before_it_joins_again() -> None:
    rig = Rig({**_MEMBER, "partition.assignment.strategy": "range"})
    rig.subscribe("t")
    _stable(rig, "classic")
    rig.core.events.take()
    rig.wait(1.0)
    rig.answer(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    rig.poll()
    rig.wait(0.25)
    rig.join(2)
    rig.sync(T0, T1)
    rig.poll()
    *before, rebalanced = rig.core.events.take()
    assert before == [PartitionsRevoked((T0,)), GenerationJoined("me", 2), PartitionsAssigned((T0, T1), 2)]
    assert isinstance(rebalanced, Rebalanced)
    assert rebalanced.generation_id == 2
    assert rebalanced.duration_s == pytest.approx(0.25)


def test_g23_what_is_not_taken_is_dropped_and_counted() -> None:
    events = ConsumerEvents()
    for number in range(MAX_WAITING + 3):
        events.add(Expelled(str(number)))
    dropped, *kept = events.take()
    assert dropped == EventsDropped(3)
    assert (kept[0], len(kept)) == (Expelled("3"), MAX_WAITING)
    events.add(Expelled("last"))
    assert events.take() == [Expelled("last")]


def test_o5_a_reset_is_an_event_with_what_it_skipped() -> None:
    rig = Rig({"group.id": "g", "enable.auto.commit": False})
    reset = OffsetReset(T0, 3, 10)
    rig.core._resets.happened(reset)
    assert rig.core.events.take() == [reset]
    assert reset.skipped == 7
