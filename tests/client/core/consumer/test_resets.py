"""SPEC O5: where reading begins, and where it goes on after a position was lost. The whole core, no network."""

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.consumer.positions import NO_POSITION
from ottla.client.core.intents import RefreshMetadata
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.errors import (
    DisconnectedError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.special_timestamp import SpecialTimestamp
from tests.client.core.consumer.rig import TOPIC_ID, WALL_MS, Rig, snapshot

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def committed(**offsets: int) -> OffsetFetchResponse:
    """What the group has committed of partitions a (0) and b (1) of `t`."""
    numbers = {"a": 0, "b": 1}
    parts = tuple(OffsetFetchResponsePartitions(numbers[name], offset) for name, offset in offsets.items())
    return OffsetFetchResponse(
        groups=(OffsetFetchResponseGroup("g", (OffsetFetchResponseTopics(TOPIC_ID, "t", parts),)),)
    )


def listed(*parts: ListOffsetsPartitionResponse) -> ListOffsetsResponse:
    return ListOffsetsResponse(topics=(ListOffsetsTopicResponse("t", parts),))


def out_of_range(*numbers: int) -> FetchResponse:
    parts = tuple(PartitionData(number, ErrorCode.OFFSET_OUT_OF_RANGE) for number in numbers)
    return FetchResponse(responses=(FetchableTopicResponse(TOPIC_ID, "t", parts),))


def times(rig: Rig) -> dict[int, int]:
    """The times that ListOffsets asks for, by partition."""
    return {
        p.partition_index: p.timestamp for topic in rig.message(ApiKey.LIST_OFFSETS).topics for p in topic.partitions
    }


def test_a_committed_offset_is_where_reading_begins() -> None:
    rig = Rig({"group.id": "g"})
    rig.assign(A)
    rig.answer(ApiKey.OFFSET_FETCH, committed(a=7))
    assert (rig.state(A).position, rig.state(A).fetch_offset) == (7, 7)
    [topic] = rig.message(ApiKey.FETCH).topics
    assert [p.fetch_offset for p in topic.partitions] == [7]


@pytest.mark.parametrize(
    ("policy", "time"),
    [("earliest", -2), ("latest", -1), ("by_duration:PT1H", WALL_MS - 3_600_000)],
)
def test_o5_without_a_committed_offset_the_policy_says_where(policy: str, time: int) -> None:
    rig = Rig({"group.id": "g", "auto.offset.reset": policy})
    rig.assign(A, B)
    rig.answer(ApiKey.OFFSET_FETCH, committed(a=-1, b=4))
    assert times(rig) == {0: time}
    rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=11)))
    assert (rig.state(A).position, rig.state(B).position) == (11, 4)
    rig.run_all_callbacks()
    assert rig.resets == [OffsetReset(A, -1, 11)]


@pytest.mark.parametrize(
    ("policy", "offsets", "text"),
    [
        ("earliest", [11], "t-0: reading begins at offset 11"),
        ("latest", [11], "t-0: reading begins at offset 11; what lies before it is not read"),
        ("latest", [0], "t-0: reading begins at offset 0"),
        ("by_duration:PT1H", [3], "t-0: reading begins at offset 3; what lies before it is not read"),
        ("by_duration:PT1H", [-1, 11], "t-0: reading begins at offset 11; what lies before it is not read"),
    ],
)
def test_o5_a_start_that_passes_over_records_says_so(policy: str, offsets: list[int], text: str) -> None:
    """How many these are is not asked: it would take another answer. So `skipped` is 0."""
    rig = Rig({"group.id": "g", "auto.offset.reset": policy})
    rig.assign(A)
    rig.answer(ApiKey.OFFSET_FETCH, committed(a=-1))
    for offset in offsets:
        rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=offset)))
    rig.run_all_callbacks()
    assert rig.said[-1] == text
    assert [reset.skipped for reset in rig.resets] == [0]


def test_o5_a_time_after_the_last_record_is_the_end() -> None:
    rig = Rig({"auto.offset.reset": "by_duration:PT1S"})
    rig.assign(A)
    rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=-1)))
    assert times(rig) == {0: -1}


def test_o5_without_an_offset_and_a_policy_poll_fails_and_asks_again_when_it_is_called_again() -> None:
    rig = Rig({"group.id": "g", "auto.offset.reset": "none"})
    rig.assign(A)
    for _ in range(2):
        rig.answer(ApiKey.OFFSET_FETCH, committed(a=-1))
        assert [type(error) for error in rig.raised()] == [NoOffsetForPartitionError]
        assert rig.state(A).position == NO_POSITION
        rig.wait(10)
        assert not rig.asked(ApiKey.OFFSET_FETCH), "nobody has asked"
        rig.poll()


def test_o5_out_of_range_goes_where_the_policy_says_and_tells_what_was_skipped() -> None:
    rig = Rig()
    rig.assign(A)
    rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=5)))
    rig.answer(ApiKey.FETCH, out_of_range(0))
    assert times(rig) == {0: -2}
    rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=9)))
    rig.run_all_callbacks()
    assert rig.resets[-1] == OffsetReset(A, 5, 9)
    assert rig.said[-1] == "t-0: offset 5 is not in the log any more, reading goes on at 9: 4 offsets are skipped"


def beyond_the_end(policy: str = "earliest", epoch: int = -1, replicas: int = 2) -> Rig:
    """The group has committed offset 7 in `epoch`, and the log of the leader that metadata names ends at 5."""
    rig = Rig({"group.id": "g", "auto.offset.reset": policy}, known=snapshot(replicas=replicas, t=2))
    rig.assign(A)
    rig.answer(ApiKey.OFFSET_FETCH, committed(a=7))
    rig.state(A).position_epoch = epoch
    rig.intended.clear()
    is_refused(rig, policy)
    return rig


def is_refused(rig: Rig, policy: str = "earliest") -> None:
    """The leader says so again, and that its log lies between 0 and 5. The policy is asked for, if there is need."""
    ends = {"earliest": 0, "latest": 5}
    rig.answer(ApiKey.FETCH, out_of_range(0))
    for end, offset in ends.items():
        assert times(rig) == {0: SpecialTimestamp[end.upper()]}
        rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=offset)))
    if rig.asked(ApiKey.LIST_OFFSETS):
        rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=ends[policy])))
    rig.run_all_callbacks()


@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H", "none"])
@pytest.mark.parametrize("ends", [(5, 66), (7, 66), (7, 7), (0, 7)])
def test_o5_a_position_that_is_in_the_log_after_all_stays(policy: str, ends: tuple[int, int]) -> None:
    """The simulator's find (broker-consumer-groups 830000846): a loss of power had undone a deletion meanwhile."""
    rig = Rig({"group.id": "g", "auto.offset.reset": policy, "isolation.level": "read_committed"})
    rig.assign(A)
    rig.answer(ApiKey.OFFSET_FETCH, committed(a=7))
    rig.state(A).position_epoch = 3
    rig.answer(ApiKey.FETCH, out_of_range(0))
    for offset in ends:
        assert rig.message(ApiKey.LIST_OFFSETS).isolation_level == 0, "a transaction may be open below the position"
        rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=offset)))
    rig.run_all_callbacks()
    state = rig.state(A)
    assert (state.position, state.position_epoch, rig.resets, rig.raised()) == (7, 3, [], [])
    assert state.validate, "another leader may have another history"
    assert not rig.asked(ApiKey.FETCH), "not at once"


def test_o5_a_position_in_doubt_can_be_committed() -> None:
    """Else a consumer that closes meanwhile would forget what it has read."""
    rig = Rig({"group.id": "g"})
    rig.assign(A)
    rig.answer(ApiKey.OFFSET_FETCH, committed(a=7))
    rig.state(A).position_epoch = 3
    rig.answer(ApiKey.FETCH, out_of_range(0))
    assert rig.state(A).committable() == OffsetAndMetadata(7, "", 3)
    rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=5)))
    assert rig.state(A).committable() == OffsetAndMetadata(7, "", 3)
    rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=6)))
    assert rig.state(A).committable() is None, "it is lost, and another one is looked up"


def test_o5_a_position_whose_epoch_is_not_known_is_fetched_again_if_it_is_in_the_log() -> None:
    rig = Rig({"group.id": "g", "auto.offset.reset": "latest"})
    rig.assign(A)
    rig.answer(ApiKey.OFFSET_FETCH, committed(a=7))
    rig.answer(ApiKey.FETCH, out_of_range(0))
    for offset in (5, 66):
        rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=offset)))
    rig.wait(1)
    [topic] = rig.message(ApiKey.FETCH).topics
    assert [p.fetch_offset for p in topic.partitions] == [7]


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_c5_a_position_beyond_the_end_is_tried_again_because_a_leader_may_have_been_deposed(policy: str) -> None:
    rig = beyond_the_end(policy)
    assert (rig.state(A).position, rig.resets) == (7, [])
    assert rig.said[-1].startswith("t-0: offset 7 is beyond the end of the log that its leader has: asked again for")
    assert not rig.asked(ApiKey.FETCH), "not at once"
    rig.wait(1)
    assert any(isinstance(intent, RefreshMetadata) for intent in rig.intended), "there may be a new leader"
    is_refused(rig, policy)
    rig.learn(snapshot(1, 2, 2, t=2))
    rig.wait(1)
    asked = rig.asked(ApiKey.FETCH)[-1]
    assert asked.to.node_id == 2  # type: ignore[union-attr]
    rig.answer(ApiKey.FETCH, FetchResponse(responses=(FetchableTopicResponse(TOPIC_ID, "t", (PartitionData(0),)),)))
    assert (rig.state(A).position, rig.resets) == (7, [])
    rig.wait(100)
    is_refused(rig, policy)
    assert rig.resets == [], "each time it has as long to be found again"
    assert rig.raised() == []


@pytest.mark.parametrize(("policy", "after"), [("earliest", 0), ("latest", 5)])
def test_c5_what_leaders_say_for_longer_than_metadata_can_be_out_of_date_is_true(policy: str, after: int) -> None:
    rig = beyond_the_end(policy)
    for _ in range(30):
        assert rig.resets == []
        rig.wait(1)
        is_refused(rig, policy)
    assert rig.resets == [OffsetReset(A, 7, after)]


def test_c5_without_a_policy_a_leader_that_may_have_been_deposed_is_no_reason_to_give_up() -> None:
    rig = beyond_the_end("none")
    for _ in range(30):
        assert rig.raised() == []
        rig.wait(1)
        is_refused(rig, "none")
    [error] = rig.raised()
    assert isinstance(error, OffsetOutOfRangeError)
    assert "offset 7 is beyond the end of the log (offset 5)" in str(error)
    assert (rig.state(A).position, rig.resets) == (7, [])
    rig.learn(snapshot(1, 2, 2, t=2))
    rig.wait(1.1)
    assert rig.asked(ApiKey.FETCH)[-1].to.node_id == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("of", ["a single replica", "the epoch of the position"])
def test_c5_without_a_policy_a_leader_that_must_be_right_is_believed(of: str) -> None:
    rig = beyond_the_end("none", replicas=1) if of == "a single replica" else beyond_the_end("none", epoch=0)
    assert [type(error) for error in rig.raised()] == [OffsetOutOfRangeError]


def test_c5_a_seek_takes_the_place_of_a_position_that_is_tried_again() -> None:
    rig = beyond_the_end()
    rig.state(A).seek(3)
    rig.do(rig.core.positions_chosen)
    [topic] = rig.message(ApiKey.FETCH).topics
    assert [p.fetch_offset for p in topic.partitions] == [3]


def test_c5_a_leader_that_cannot_have_been_deposed_or_has_the_epoch_of_the_position_is_believed() -> None:
    for rig in (beyond_the_end(replicas=1), beyond_the_end(epoch=0)):
        assert rig.resets == [OffsetReset(A, 7, 0)]


def test_o5_a_position_before_the_start_of_the_log_is_replaced_at_once_whoever_leads() -> None:
    rig = Rig({"group.id": "g"}, known=snapshot(replicas=2, t=2))
    rig.assign(A)
    rig.answer(ApiKey.OFFSET_FETCH, committed(a=7))
    rig.answer(ApiKey.FETCH, out_of_range(0))
    rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=9)))
    rig.run_all_callbacks()
    assert rig.resets == [OffsetReset(A, 7, 9)]


@pytest.mark.parametrize(
    ("ends", "where"),
    [
        ((12,), "offset 9 is before the start of the log (offset 12)"),
        ((3, 8), "offset 9 is beyond the end of the log (offset 8)"),
    ],
)
def test_o5_out_of_range_without_a_policy_keeps_the_position_and_is_told_again(
    ends: tuple[int, ...], where: str
) -> None:
    rig = Rig({"auto.offset.reset": "none"})
    rig.assign(A)
    rig.raised()
    rig.state(A).seek(9)
    rig.do(rig.core.positions_chosen)
    for _ in range(2):
        rig.answer(ApiKey.FETCH, out_of_range(0))
        for offset in ends:
            rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, offset=offset)))
        [error] = rig.raised()
        assert isinstance(error, OffsetOutOfRangeError)
        assert where in str(error)
        assert "seek()" in str(error)
        assert (rig.state(A).position, rig.state(A).fetch_offset) == (9, 9)
        assert not rig.asked(ApiKey.FETCH), "not at once"
        rig.wait(2)


def test_a_lookup_without_an_answer_is_repeated_after_a_pause() -> None:
    rig = Rig()
    rig.assign(A)
    rig.fail(ApiKey.LIST_OFFSETS, DisconnectedError("gone"))
    assert not rig.asked(ApiKey.LIST_OFFSETS)
    rig.wait(1)
    assert times(rig) == {0: -2}


def test_a_lookup_that_is_refused_for_good_is_told() -> None:
    rig = Rig()
    rig.assign(A)
    answer = listed(ListOffsetsPartitionResponse(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    rig.answer(ApiKey.LIST_OFFSETS, answer)
    assert [error.code for error in rig.raised() if isinstance(error, KafkaError)] == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ]


def test_a_lookup_of_a_leader_that_moved_waits_for_metadata() -> None:
    rig = Rig()
    rig.assign(A)
    rig.answer(ApiKey.LIST_OFFSETS, listed(ListOffsetsPartitionResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    rig.learn(snapshot(1, 2, t=2))
    rig.wait(1)
    assert rig.asked(ApiKey.LIST_OFFSETS)[0].to.node_id == 2  # type: ignore[union-attr]


def test_positions_are_looked_up_as_soon_as_metadata_names_the_leader() -> None:
    rig = Rig(known=snapshot())
    rig.assign(A)
    assert not rig.asked(ApiKey.LIST_OFFSETS)
    rig.learn(snapshot(t=1))
    assert times(rig) == {0: -2}


def test_a_seek_is_not_undone_by_what_was_looked_up_before_it() -> None:
    rig = Rig()
    rig.assign(A)
    asked = rig.take(ApiKey.LIST_OFFSETS)
    rig.state(A).seek(3)
    rig.do(rig.core.positions_chosen)
    rig.do(rig.core.answered, asked.ticket, listed(ListOffsetsPartitionResponse(0, offset=9)))
    assert rig.state(A).position == 3


@pytest.mark.parametrize(
    ("reset", "text"),
    [
        (OffsetReset(A, -1, 7), "t-0: reading begins at offset 7"),
        (
            OffsetReset(A, 5, 9),
            "t-0: offset 5 is not in the log any more, reading goes on at 9: 4 offsets are skipped",
        ),
        (
            OffsetReset(A, 100, 0),
            "t-0: offset 100 is beyond the end of the log (it was cut, the topic was created again, or the offset was "
            "never there), reading goes on at 0",
        ),
    ],
)
def test_o5_a_reset_says_what_became_of_the_records(reset: OffsetReset, text: str) -> None:
    assert str(reset) == text


def test_o5_a_reset_counts_what_was_skipped() -> None:
    assert [OffsetReset(A, *moved).skipped for moved in ((5, 9), (9, 5), (-1, 5))] == [4, 0, 0]
