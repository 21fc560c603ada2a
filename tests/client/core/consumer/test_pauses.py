"""KIP-580: what is refused is asked again after pauses that grow, until it succeeds or another leader is named."""

from collections.abc import Callable

import pytest

from ottla.base.types import TopicPartition
from ottla.client.errors import DisconnectedError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.client.core.consumer.rig import TOPIC_ID, Rig, snapshot

A = TopicPartition("t", 0)
_STEP_S = 0.02
_CODE = ErrorCode.OFFSET_NOT_AVAILABLE


def fetched(*parts: PartitionData) -> FetchResponse:
    return FetchResponse(responses=(FetchableTopicResponse(TOPIC_ID, "t", parts),))


_REFUSALS: dict[str, tuple[ApiKey, object]] = {
    "a partition's fetch": (ApiKey.FETCH, fetched(PartitionData(0, error_code=_CODE))),
    "a fetch": (ApiKey.FETCH, FetchResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR)),
    "a fetch without an answer": (ApiKey.FETCH, None),
    "an offset": (
        ApiKey.LIST_OFFSETS,
        ListOffsetsResponse(topics=(ListOffsetsTopicResponse("t", (ListOffsetsPartitionResponse(0, _CODE),)),)),
    ),
    "an offset without an answer": (ApiKey.LIST_OFFSETS, None),
    "an offset that is left out": (ApiKey.LIST_OFFSETS, ListOffsetsResponse()),
    "an epoch's end": (
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochResponse(topics=(OffsetForLeaderTopicResult("t", (EpochEndOffset(_CODE, 0),)),)),
    ),
    "a committed offset": (
        ApiKey.OFFSET_FETCH,
        OffsetFetchResponse(groups=(OffsetFetchResponseGroup("g", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),)),
    ),
}
refusals = pytest.mark.parametrize(("api", "answer"), _REFUSALS.values(), ids=_REFUSALS.keys())


def asking(api: ApiKey) -> Rig:
    """A consumer that asks this."""
    rig = Rig({"group.id": "g"} if api is ApiKey.OFFSET_FETCH else {}, known=snapshot(3, t=1))
    rig.assign(A)
    rig.asks = rig.asked(api)
    if api is ApiKey.FETCH:
        rig.state(A).seek(5)
    elif api is ApiKey.OFFSET_FOR_LEADER_EPOCH:
        rig.state(A).seek(5, 3)
    rig.do(rig.core.positions_chosen)
    return rig


def refuse(rig: Rig, api: ApiKey, answer: object) -> None:
    if answer is None:
        rig.fail(api, DisconnectedError("away"))
    else:
        rig.answer(api, answer)


def refused_within(rig: Rig, seconds: float, refused: Callable[[], None], api: ApiKey) -> int:
    """How often it was asked, and refused at once."""
    count, until_s = 0, rig.now_s + seconds
    while rig.now_s < until_s:
        while rig.asked(api):
            refused()
            count += 1
        rig.wait(_STEP_S)
    return count


@refusals
def test_what_is_refused_is_asked_again_ever_more_seldom(api: ApiKey, answer: object) -> None:
    rig = asking(api)
    assert 3 <= refused_within(rig, 1, lambda: refuse(rig, api, answer), api) <= 5
    assert 50 <= refused_within(rig, 60, lambda: refuse(rig, api, answer), api) <= 75


@refusals
def test_another_leader_is_asked_at_once(api: ApiKey, answer: object) -> None:
    rig = asking(api)
    refused_within(rig, 60, lambda: refuse(rig, api, answer), api)
    while not rig.asked(api):
        rig.wait(_STEP_S)
    refuse(rig, api, answer)
    assert not rig.asked(api)
    rig.learn(snapshot(4, 2, t=1))
    assert rig.asked(api)
    assert 3 <= refused_within(rig, 1, lambda: refuse(rig, api, answer), api) <= 6


@refusals
def test_metadata_without_another_leader_shortens_no_pause(api: ApiKey, answer: object) -> None:
    rig = asking(api)
    refused_within(rig, 60, lambda: refuse(rig, api, answer), api)
    while not rig.asked(api):
        rig.wait(_STEP_S)
    refuse(rig, api, answer)
    rig.learn(snapshot(3, t=1))
    assert not rig.asked(api)


@pytest.mark.parametrize(
    ("api", "answer"), [_REFUSALS[what] for what in _REFUSALS if _REFUSALS[what][0] is ApiKey.FETCH]
)
def test_after_a_fetch_that_succeeds_the_pauses_are_short_again(api: ApiKey, answer: object) -> None:
    rig = asking(api)
    refused_within(rig, 60, lambda: refuse(rig, api, answer), api)
    while not rig.asked(api):
        rig.wait(_STEP_S)
    rig.answer(api, fetched(PartitionData(0)))
    assert 3 <= refused_within(rig, 1, lambda: refuse(rig, api, answer), api) <= 5


def test_refusals_of_many_partitions_in_one_answer_count_as_one() -> None:
    rig = Rig(known=snapshot(3, t=50))
    rig.assign(*(TopicPartition("t", number) for number in range(50)))
    rig.do(rig.core.positions_chosen)
    parts = tuple(ListOffsetsPartitionResponse(number, _CODE) for number in range(50))
    refusal = ListOffsetsResponse(topics=(ListOffsetsTopicResponse("t", parts),))
    assert 3 <= refused_within(rig, 1, lambda: refuse(rig, ApiKey.LIST_OFFSETS, refusal), ApiKey.LIST_OFFSETS) <= 5
