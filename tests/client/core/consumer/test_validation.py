"""SPEC C5: leader epochs (KIP-320). The whole core, no network."""

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.intents import RefreshMetadata
from ottla.client.errors import DisconnectedError, LogTruncatedError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.client.core.consumer.rig import Rig, snapshot

TP = TopicPartition("t", 0)


#: The answer of a leader that knows no such epoch.
UNDEFINED = OffsetForLeaderEpochResponse(topics=(OffsetForLeaderTopicResult("t", (EpochEndOffset(0, 0, -1, -1),)),))


def after_a_new_leader(policy: str = "earliest") -> Rig:
    """The user has read up to offset 50, of epoch 3; then the leader changes."""
    rig = Rig({"auto.offset.reset": policy}, known=snapshot(3, t=1))
    rig.assign(TP)
    rig.raised()
    rig.state(TP).seek(50)
    rig.state(TP).position_epoch = 3
    rig.do(rig.core.positions_chosen)
    rig.learn(snapshot(4, 2, t=1))
    assert rig.state(TP).validate
    return rig


def ends_at(rig: Rig, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
    """The new leader says where the epoch ends."""
    end = EpochEndOffset(code, 0, 3, offset)
    answer = OffsetForLeaderEpochResponse(topics=(OffsetForLeaderTopicResult("t", (end,)),))
    rig.answer(ApiKey.OFFSET_FOR_LEADER_EPOCH, answer)


def test_c5_a_new_leader_is_asked_whether_it_has_what_was_read() -> None:
    rig = after_a_new_leader()
    [topic] = rig.message(ApiKey.OFFSET_FOR_LEADER_EPOCH).topics
    assert [(p.current_leader_epoch, p.leader_epoch) for p in topic.partitions] == [(4, 3)]
    ends_at(rig, 80)
    assert (rig.state(TP).position, rig.state(TP).validate, rig.calls) == (50, False, [])
    assert rig.asked(ApiKey.FETCH)[-1].to.node_id == 2, "it is read from the new leader"  # type: ignore[union-attr]


def test_c5_a_truncated_log_moves_the_position_back_and_says_so() -> None:
    rig = after_a_new_leader()
    ends_at(rig, 40)
    rig.run_all_callbacks()
    assert (rig.state(TP).position, rig.resets) == (40, [OffsetReset(TP, 50, 40)])
    assert rig.said[-1].startswith(
        "t-0: the log was cut at offset 40: offsets 40 to 49, which were read before, are gone"
    )


def test_c5_without_a_reset_policy_a_truncated_log_is_an_error_until_the_user_seeks() -> None:
    rig = after_a_new_leader("none")
    for _ in range(2):
        ends_at(rig, 40)
        [error] = rig.raised()
        assert isinstance(error, LogTruncatedError)
        assert str(error).startswith(
            "t-0: the log was cut at offset 40: offsets 40 to 49, which were read before, are gone"
        )
        assert (rig.state(TP).position, rig.state(TP).validate) == (50, True)
        rig.wait(2)
    rig.state(TP).seek(40)
    rig.do(rig.core.positions_chosen)
    assert not rig.state(TP).validate


def test_c5_a_position_is_not_read_from_until_it_was_validated() -> None:
    rig = after_a_new_leader()
    rig.take(ApiKey.FETCH)  # of the leader before
    assert not rig.asked(ApiKey.FETCH)
    rig.fail(ApiKey.OFFSET_FOR_LEADER_EPOCH, DisconnectedError("gone"))
    rig.wait(1)
    ends_at(rig, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.wait(1)
    assert rig.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    assert not rig.asked(ApiKey.FETCH)


@pytest.mark.parametrize("end_offset", [40, 80])
def test_c5_a_seek_is_not_undone_by_an_answer_about_the_position_before(end_offset: int) -> None:
    rig = after_a_new_leader()
    asked = rig.take(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    rig.state(TP).seek(60)
    rig.do(rig.core.positions_chosen)
    end = EpochEndOffset(0, 0, 3, end_offset)
    answer = OffsetForLeaderEpochResponse(topics=(OffsetForLeaderTopicResult("t", (end,)),))
    rig.do(rig.core.answered, asked.ticket, answer)
    assert (rig.state(TP).position, rig.calls) == (60, [])


def test_c5_what_was_read_meanwhile_is_not_judged_by_the_epoch_before_it() -> None:
    """A fetch that was on its way brings records of epoch 4, while the new leader says where epoch 3 ends."""
    rig = after_a_new_leader()
    asked = rig.take(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    rig.state(TP).position, rig.state(TP).position_epoch = 53, 4  # as the user's poll moves it
    end = EpochEndOffset(0, 0, 3, 50)
    answer = OffsetForLeaderEpochResponse(topics=(OffsetForLeaderTopicResult("t", (end,)),))
    rig.do(rig.core.answered, asked.ticket, answer)
    rig.run_all_callbacks()
    assert (rig.state(TP).position, rig.resets) == (53, [])
    [topic] = rig.message(ApiKey.OFFSET_FOR_LEADER_EPOCH).topics
    assert [p.leader_epoch for p in topic.partitions] == [4], "it is asked again"


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_c5_a_leader_that_does_not_know_the_epoch_has_another_log(policy: str) -> None:
    """As in Apache Kafka: nothing says how far the logs are the same, so the policy says where to go on."""
    rig = after_a_new_leader(policy)
    rig.answer(ApiKey.OFFSET_FOR_LEADER_EPOCH, UNDEFINED)
    assert rig.asked(ApiKey.LIST_OFFSETS)
    assert (rig.state(TP).position, rig.state(TP).lost_at) == (-1, 50)


def test_c5_without_a_reset_policy_a_leader_that_does_not_know_the_epoch_is_an_error() -> None:
    rig = after_a_new_leader("none")
    rig.answer(ApiKey.OFFSET_FOR_LEADER_EPOCH, UNDEFINED)
    [error] = rig.raised()
    assert isinstance(error, LogTruncatedError)
    assert str(error).startswith("t-0: the leader does not know epoch 3, in which offset 49 was read")
    assert (rig.state(TP).position, rig.state(TP).validate) == (50, True)


def test_c5_what_a_leader_said_does_not_count_for_the_next_one() -> None:
    rig = after_a_new_leader()
    asked = rig.take(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    rig.learn(snapshot(5, 1, t=1))
    end = EpochEndOffset(0, 0, 3, 80)
    answer = OffsetForLeaderEpochResponse(topics=(OffsetForLeaderTopicResult("t", (end,)),))
    rig.do(rig.core.answered, asked.ticket, answer)
    [topic] = rig.message(ApiKey.OFFSET_FOR_LEADER_EPOCH).topics
    assert [p.current_leader_epoch for p in topic.partitions] == [5]


def committed_in(epoch: int, request_timeout_ms: int = 30_000) -> Rig:
    """The group has committed offset 50, in this epoch; metadata knows of epoch 3."""
    rig = Rig({"group.id": "g", "request.timeout.ms": request_timeout_ms}, known=snapshot(3, t=1))
    rig.assign(TP)
    part = OffsetFetchResponsePartitions(0, 50, epoch)
    group = OffsetFetchResponseGroup("g", (OffsetFetchResponseTopics(name="t", partitions=(part,)),))
    rig.answer(ApiKey.OFFSET_FETCH, OffsetFetchResponse(groups=(group,)))
    return rig


def test_c5_a_leader_that_is_older_than_the_position_is_not_asked() -> None:
    """It leads no more, and would say that its log ends before the position."""
    rig = committed_in(4)
    rig.wait(2)
    assert not rig.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    assert not rig.asked(ApiKey.FETCH)
    assert any(isinstance(intent, RefreshMetadata) for intent in rig.intended)
    rig.learn(snapshot(4, 2, t=1))
    ends_at(rig, 80)
    assert rig.asked(ApiKey.FETCH)[-1].to.node_id == 2  # type: ignore[union-attr]


def test_c5_old_metadata_is_not_believed_because_requests_are_to_be_quick() -> None:
    """The simulator, groups 360011511: a broker that was cut off from its controller told it for longer than that."""
    rig = committed_in(4, request_timeout_ms=1_000)
    rig.wait(20)
    assert not rig.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    rig.learn(snapshot(4, 2, t=1))
    ends_at(rig, 80)
    rig.learn(snapshot(3, t=1))
    rig.state(TP).validate = True
    rig.wait(20)
    assert not rig.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH), "it is old since now, not since then"


def test_c5_a_topic_that_was_made_anew_is_not_waited_for_without_end() -> None:
    rig = committed_in(4)
    rig.wait(31)
    assert rig.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
