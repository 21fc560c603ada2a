"""The one rule of the consumer's core: an answer counts only in the era that its request was asked in."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.assign import Assignment
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.era import Call, Eras
from ottla.client.core.consumer.group.classic.group_protocol import encode_one
from ottla.client.core.consumer.group.classic.states import State
from ottla.client.core.consumer.positions import Positions
from ottla.client.errors import DisconnectedError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupResponse
from ottla.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from ottla.wire.messages.sync_group import SyncGroupResponse
from tests.client.cooperative import CooperativeRoundRobin
from tests.client.core.consumer.rig import TOPIC_ID, Rig, partitions

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
_GROUP: dict[str, object] = {"group.id": "g", "enable.auto.commit": False}


def standing(rig: Rig) -> object:
    """All that an answer could change."""
    core = rig.core
    states = tuple((s.tp, s.assignment, s.version, s.position, s.fetch_offset) for s in core.positions)
    return core.state, core.member.metadata, core.rejoin_reason, states, bool(core.failures)


def stable(strategy: list[Any] | None = None) -> Rig:
    rig = Rig(_GROUP, strategy=strategy)
    rig.subscribe("t")
    rig.become_stable(A)
    return rig


def rejoined(rig: Rig, generation: int = 2) -> None:
    rig.do(rig.core.subscribed)
    rig.become_stable(A, generation=generation)


_ANSWERS: list[tuple[ApiKey, Callable[[ErrorCode], Any]]] = [
    (ApiKey.HEARTBEAT, lambda code: HeartbeatResponse(error_code=code)),
    (ApiKey.JOIN_GROUP, lambda code: JoinGroupResponse(error_code=code, member_id="other", generation_id=9)),
    (ApiKey.SYNC_GROUP, lambda code: SyncGroupResponse(error_code=code, assignment=encode_one(Assignment((A, B))))),
    (ApiKey.LEAVE_GROUP, lambda code: LeaveGroupResponse(error_code=code)),
    (ApiKey.OFFSET_FETCH, lambda code: OffsetFetchResponse(groups=(OffsetFetchResponseGroup("g", error_code=code),))),
]


def late(api: ApiKey) -> tuple[Rig, Any]:
    """A stable member, and a request of the membership before that has no answer yet."""
    rig = Rig(_GROUP)
    rig.subscribe("t")
    if api is ApiKey.JOIN_GROUP:
        rig.poll()
        ask = rig.take(api)
        rig.do(rig.core.unsubscribe, "call")
        rig.do(rig.core.unsubscribed)
        rig.subscribe("t")
        rig.become_stable(A, generation=2)
        return rig, ask
    if api is ApiKey.SYNC_GROUP:
        rig.poll()
        rig.join(1)
        ask = rig.take(api)
        rig.wait(0.06)
        rig.refuse(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, HeartbeatResponse)
        rig.wait(0.2)
        rig.become_stable(A, generation=2)
        return rig, ask
    rig.become_stable(A)
    if api is ApiKey.HEARTBEAT:
        rig.wait(0.06)
        ask = rig.take(api)
        rejoined(rig)
    elif api is ApiKey.OFFSET_FETCH:
        ask = rig.take(api)
        rejoined(rig)
    else:
        rig.do(rig.core.unsubscribe, "call")
        ask = rig.take(api)
        rig.wait(6)
        rig.do(rig.core.unsubscribed)
        rig.subscribe("t")
        rig.become_stable(A, generation=2)
    return rig, ask


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
@pytest.mark.parametrize(("api", "answer"), _ANSWERS, ids=lambda part: getattr(part, "name", ""))
def test_an_answer_of_the_membership_before_changes_nothing(
    api: ApiKey, answer: Callable[[ErrorCode], Any], code: ErrorCode
) -> None:
    rig, ask = late(api)
    assert rig.core.state is State.STABLE
    before = standing(rig)
    rig.do(rig.core.answered, ask.ticket, answer(code))
    assert standing(rig) == before
    rig.do(rig.core.failed, ask.ticket, DisconnectedError("late"))
    assert standing(rig) == before


def test_a_partition_that_stays_in_a_cooperative_rebalance_goes_on_being_read() -> None:
    rig = stable([CooperativeRoundRobin()])
    rig.state(A).seek(0)
    rig.do(rig.core.positions_chosen)
    ask = rig.take(ApiKey.FETCH)
    rig.do(rig.core.subscribed)
    rig.become_stable(A, B, generation=2)
    data = PartitionData(0, high_watermark=7, last_stable_offset=7)
    rig.do(rig.core.answered, ask.ticket, FetchResponse(responses=(FetchableTopicResponse(TOPIC_ID, "t", (data,)),)))
    assert rig.state(A).high_watermark == 7


def test_a_partition_that_was_given_up_and_came_back_is_another_one() -> None:
    rig = stable()  # eager
    rig.state(A).seek(0)
    rig.do(rig.core.positions_chosen)
    ask = rig.take(ApiKey.FETCH)
    rejoined(rig)
    data = PartitionData(0, high_watermark=7, last_stable_offset=7)
    rig.do(rig.core.answered, ask.ticket, FetchResponse(responses=(FetchableTopicResponse(TOPIC_ID, "t", (data,)),)))
    assert rig.state(A).high_watermark == -1


def test_a_fetch_session_counts_every_answer() -> None:
    rig = Rig()
    rig.assign(A)
    rig.state(A).seek(0)
    rig.do(rig.core.positions_chosen)
    ask = rig.take(ApiKey.FETCH)
    rig.state(A).seek(5)
    rig.do(rig.core.positions_chosen)
    rig.do(rig.core.answered, ask.ticket, FetchResponse(session_id=3))
    request = rig.message(ApiKey.FETCH)
    assert (request.session_id, request.session_epoch) == (3, 1)


def test_eras_of_partitions_hold_one_by_one() -> None:
    positions = Positions()
    eras = Eras(positions)
    positions.assign([A, B])
    ticket = eras.of_partitions(Call.FETCH, list(positions))
    assert set(eras.current(ticket)) == partitions("t", 0, 1)
    state = positions.get(A)
    assert state is not None
    state.seek(3)
    assert set(eras.current(ticket)) == {B}
    assert eras.holds(ticket)
    positions.assign([A])
    assert not eras.holds(ticket)
    positions.assign([A, B])
    assert not eras.holds(ticket), "B is another one by now"
