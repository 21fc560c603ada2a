"""Committed offsets: who may commit, what is written, what is read back, what expires."""

from __future__ import annotations

import pytest

from ottla.coordinator.group.classic.state import GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.offsets.fetch import groups_of, response_of
from ottla.log.config import LogConfig
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
)
from ottla.wire.offsets_records import OffsetCommitValue, decode_offset_commit_value
from ottla.wire.records import Record, encode_batch
from tests.coordinator.cost import steps
from tests.coordinator.group.rig import GROUP, REBALANCE_MS, SESSION_MS, Rig, protocols, recover

TOPIC_ID, OTHER_ID = b"\x01" * 16, b"\x02" * 16
DAY_MS = 24 * 3_600_000


def delete(rig: Rig, *partitions: int, topic: str = "words", group_id: str = GROUP) -> OffsetDeleteResponse:
    token = rig.token()
    wanted = tuple(OffsetDeleteRequestPartition(p) for p in partitions)
    request = OffsetDeleteRequest(group_id, (OffsetDeleteRequestTopic(topic, wanted),))
    rig.run(rig.shard.delete_offsets(token, request))
    answer: OffsetDeleteResponse = rig.answer(token)
    return answer


# -- O1: commit


def test_o1_a_commit_is_one_record_in_kafkas_schema() -> None:
    rig = Rig()
    assert rig.commit(42, partition=3, metadata="note", topic_id=TOPIC_ID) is ErrorCode.NONE
    (record,) = rig.records
    assert record.key == b"\x00\x01\x00\x07readers\x00\x05words\x00\x00\x00\x03"
    assert record.value is not None
    assert record.value[:2] == b"\x00\x04"
    assert decode_offset_commit_value(record.value) == OffsetCommitValue(42, 0, "note", rig.now_ms, -1, TOPIC_ID)
    assert rig.fetch(3) == OffsetFetchResponsePartitions(3, 42, 0, "note", 0)


def test_o2_a_commit_with_its_own_retention_is_written_as_version_1() -> None:
    rig = Rig()
    rig.commit(42, retention_ms=1_000)
    value = rig.records[0].value
    assert value is not None
    assert value[:2] == b"\x00\x01"
    assert decode_offset_commit_value(value).expire_timestamp_ms == rig.now_ms + 1_000


def test_o1_metadata_has_a_limit() -> None:
    rig = Rig(GroupConfig(offset_metadata_max_bytes=4))
    assert rig.commit(1, metadata="1234") is ErrorCode.NONE
    assert rig.commit(2, metadata="12345") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert rig.commit_in_transaction(2, metadata="12345") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert rig.commit(3, metadata=None) is ErrorCode.NONE
    assert (rig.fetch().committed_offset, len(rig.records)) == (3, 2)


def test_o1_without_a_group_a_commit_makes_one_and_with_a_generation_it_is_refused() -> None:
    rig = Rig()
    assert rig.commit(1, member_id="m", generation=3) is ErrorCode.GROUP_ID_NOT_FOUND
    assert rig.commit(1, member_id="m", generation=3, report_missing=False) is ErrorCode.ILLEGAL_GENERATION
    assert rig.shard.group(GROUP) is None
    assert rig.commit(1) is ErrorCode.NONE
    assert (rig.state(), rig.group().protocol_type) == (GroupState.EMPTY, None)


def test_g12_commits_by_generation_and_state() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    assert rig.commit(1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(1, member_id=leader) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(1, member_id=leader, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(1, member_id="stranger", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.fetch().committed_offset == -1
    assert rig.commit(1, member_id=leader, generation=1) is ErrorCode.NONE
    rig.join(leader)
    assert rig.commit(2, member_id=follower, generation=1) is ErrorCode.NONE  # what G13's commit before a rejoin needs
    rig.join(follower)
    assert rig.commit(3, member_id=follower, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(3, member_id=follower, generation=2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.fetch().committed_offset == 2


def test_a_commit_keeps_the_session() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    for _ in range(3):
        rig.advance(SESSION_MS - 1)
        assert rig.commit(1, member_id=member, generation=1) is ErrorCode.NONE


# -- T11: commit in a transaction


def test_t11_offsets_of_a_transaction_count_when_it_commits() -> None:
    rig = Rig()
    rig.commit(1)
    assert rig.commit_in_transaction(5) is ErrorCode.NONE
    assert rig.log[-1].producer_id == 7
    assert rig.fetch().committed_offset == 1
    assert rig.fetch(require_stable=True) == OffsetFetchResponsePartitions(
        0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    assert rig.fetch(1, require_stable=True).error_code == ErrorCode.NONE
    rig.marker(7, commit=True)
    assert rig.fetch(require_stable=True).committed_offset == 5


def test_t11_offsets_of_an_aborted_transaction_never_count() -> None:
    rig = Rig()
    rig.commit_in_transaction(5)
    rig.marker(7, commit=False)
    assert rig.fetch(require_stable=True) == OffsetFetchResponsePartitions(0, -1, -1, "", 0)


def test_t11_a_member_fenced_by_a_rebalance_cannot_commit() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.leave(follower)
    rig.complete([rig.joined(rig.join(leader))])
    assert rig.commit_in_transaction(1, member_id=follower, generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit_in_transaction(1, member_id=leader, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit_in_transaction(1, member_id=leader, generation=2) is ErrorCode.NONE


def test_t11_producers_without_group_metadata_commit_in_any_state() -> None:
    rig = Rig()
    rig.stable(1)
    assert rig.commit_in_transaction(1) is ErrorCode.NONE
    assert rig.commit_in_transaction(1, group_id="") is ErrorCode.INVALID_GROUP_ID
    assert rig.commit_in_transaction(1, group_id="new") is ErrorCode.NONE
    assert rig.commit_in_transaction(1, group_id="other", generation=1) is ErrorCode.ILLEGAL_GENERATION


def test_t11_while_the_assignment_is_awaited_a_transaction_may_commit() -> None:
    rig = Rig()
    token = rig.join_twice()
    rig.advance(0)
    member = rig.joined(token).member_id
    assert rig.commit_in_transaction(1, member_id=member, generation=1) is ErrorCode.NONE


def test_t11_two_transactions_on_one_partition_are_both_waited_for() -> None:
    rig = Rig()
    rig.commit_in_transaction(5, producer_id=7)
    rig.commit_in_transaction(6, producer_id=8)
    rig.marker(8, commit=True)
    assert rig.fetch(require_stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    rig.marker(7, commit=True)
    # The later record wins, though its marker came first.
    assert rig.fetch(require_stable=True).committed_offset == 6


def test_t11_a_plain_commit_after_a_transactional_one_wins_over_its_marker() -> None:
    rig = Rig()
    rig.commit_in_transaction(5)
    rig.commit(9)
    rig.marker(7, commit=True)
    assert rig.fetch().committed_offset == 9


def test_t11_open_transactions_survive_a_crash() -> None:
    rig = Rig()
    rig.commit_in_transaction(5)
    rig.crash()
    assert rig.fetch(require_stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    rig.marker(7, commit=True)
    rig.crash()
    assert rig.fetch(require_stable=True).committed_offset == 5


def test_a_marker_of_an_unknown_producer_is_nothing() -> None:
    rig = Rig()
    rig.marker(99, commit=True)
    assert list(rig.shard.list_groups()) == []


# -- O3: fetch


def test_o3_fetch_of_all_partitions_and_of_a_missing_group() -> None:
    rig = Rig()
    for partition, offset in ((2, 20), (0, 10)):
        rig.commit(offset, partition=partition)
    rig.commit(5, topic="other")
    answer = rig.shard.fetch_offsets(OffsetFetchRequestGroup(GROUP, topics=None), require_stable=False)
    found = [(t.name, p.partition_index, p.committed_offset) for t in answer.topics for p in t.partitions]
    assert found == [("words", 0, 10), ("words", 2, 20), ("other", 0, 5)]
    nothing = rig.shard.fetch_offsets(OffsetFetchRequestGroup("nowhere", topics=None), require_stable=False)
    assert (nothing.topics, nothing.error_code) == ((), 0)
    assert rig.fetch(group_id="nowhere").committed_offset == -1


def test_o3_an_offset_of_a_deleted_namesake_is_not_found() -> None:
    rig = Rig()
    rig.commit(5, topic_id=TOPIC_ID)
    assert rig.fetch(topic_id=TOPIC_ID).committed_offset == 5
    assert rig.fetch().committed_offset == 5
    assert rig.fetch(topic_id=OTHER_ID).committed_offset == -1


def test_o3_the_old_form_of_the_request_and_of_the_answer() -> None:
    rig = Rig()
    rig.commit(5, metadata="note")
    old = OffsetFetchRequest(group_id=GROUP, topics=(OffsetFetchRequestTopic("words", (0,)),))
    (group,) = groups_of(old)
    assert group == OffsetFetchRequestGroup(
        GROUP, topics=(OffsetFetchRequestTopics(name="words", partition_indexes=(0,)),)
    )
    answer = response_of(old, (rig.shard.fetch_offsets(group, require_stable=False),))
    partition = OffsetFetchResponsePartition(0, 5, 0, "note", 0)
    assert answer == OffsetFetchResponse(topics=(OffsetFetchResponseTopic("words", (partition,)),))
    assert groups_of(OffsetFetchRequest(group_id=GROUP, topics=None))[0].topics is None
    new = OffsetFetchRequest(groups=(group,))
    assert groups_of(new) == (group,)
    assert response_of(new, ()).groups == ()


@pytest.mark.parametrize(("retention_ms", "expires_ms"), [(2**63 - 1, 2**63 - 1), (-(2**63), 0)])
def test_o2_a_retention_without_room_in_a_record_ends_at_the_end_of_time(retention_ms: int, expires_ms: int) -> None:
    rig = Rig()
    assert rig.commit(42, retention_ms=retention_ms) is ErrorCode.NONE
    (record,) = rig.records
    assert decode_offset_commit_value(record.value or b"").expire_timestamp_ms == expires_ms


# -- O2: retention


def test_o2_retention_counts_from_the_groups_emptiness() -> None:
    rig = Rig()
    (member,) = rig.stable(1, session_ms=1_800_000)
    rig.commit(5, member_id=member, generation=1)
    for _ in range(8 * 72):
        rig.advance(DAY_MS // 72)
        assert rig.heartbeat(member, 1) is ErrorCode.NONE
    rig.leave(member)
    rig.advance(7 * DAY_MS - 1)
    assert rig.fetch().committed_offset == 5
    rig.advance(600_001)
    assert rig.shard.group(GROUP) is None
    assert [record.value for record in rig.records[-2:]] == [None, None]


def test_o2_offsets_of_a_simple_group_expire_one_by_one() -> None:
    rig = Rig()
    rig.commit(1, partition=0)
    rig.advance(DAY_MS)
    rig.commit(2, partition=1)
    rig.advance(6 * DAY_MS + 600_000)
    assert (rig.fetch(0).committed_offset, rig.fetch(1).committed_offset) == (-1, 2)
    rig.advance(DAY_MS)
    assert rig.shard.group(GROUP) is None


def test_o2_a_retention_said_by_an_old_client_is_kept() -> None:
    rig = Rig()
    rig.commit(1, partition=0, retention_ms=3_600_000)
    rig.commit(2, partition=1, retention_ms=30 * DAY_MS)
    rig.advance(3_600_000)
    assert (rig.fetch(0).committed_offset, rig.fetch(1).committed_offset) == (-1, 2)
    rig.advance(29 * DAY_MS)
    assert rig.fetch(1).committed_offset == 2


def test_o2_a_stable_group_keeps_the_topics_it_reads() -> None:
    rig = Rig()
    (member,) = rig.stable(1, session_ms=1_800_000)
    rig.commit(1, member_id=member, generation=1)
    rig.commit(2, member_id=member, generation=1, topic="formerly")
    for _ in range(8 * 72):
        rig.advance(DAY_MS // 72)
        rig.heartbeat(member, 1)
    assert rig.fetch().committed_offset == 1
    answer = rig.shard.fetch_offsets(OffsetFetchRequestGroup(GROUP, topics=None), require_stable=False)
    assert [topic.name for topic in answer.topics] == ["words"]


def test_o2_offsets_of_open_transactions_and_groups_in_rebalance_do_not_expire() -> None:
    rig = Rig()
    rig.commit(1)
    rig.commit_in_transaction(2)
    rig.advance(8 * DAY_MS)
    assert rig.fetch().committed_offset == 1
    rig.marker(7, commit=False)
    rig.advance(600_000)
    assert rig.shard.group(GROUP) is None


def test_o2_a_group_with_a_member_id_handed_out_is_not_removed() -> None:
    rig = Rig()
    rig.advance(595_000)
    pending = rig.answer(rig.join()).member_id
    rig.advance(5_000)
    rig.join(pending)
    rig.advance(0)
    assert rig.group().generation == 1


def test_o2_many_tombstones_go_in_several_batches() -> None:
    rig = Rig(GroupConfig(offsets_retention_ms=1))
    for partition in range(2_003):
        rig.commit(1, partition=partition)
    batches: list[int] = []
    rig.now_ms += 1
    while rig.shard.group(GROUP) is not None:
        before = len(rig.log)
        rig.run(rig.shard.timer(("retention",), rig.now_ms))
        batches.append(len(rig.log) - before)
    assert batches == [1_000, 1_000, 4]


def test_o2_a_batch_of_tombstones_of_long_names_fits_into_the_log() -> None:
    rig, group_id, topic = Rig(), "g" * 2_000, "t" * 249
    for partition in range(1_000):
        rig.commit(1, partition=partition, group_id=group_id, topic=topic)
    rig.topic_ids[topic] = None
    decision = rig.shard.topics_deleted()
    encoded = encode_batch([Record(at, 0, each.key, each.value, ()) for at, each in enumerate(decision.records)])
    assert 1 < len(decision.records) < 1_000
    assert len(encoded) < LogConfig().max_message_bytes
    rig.run(decision)
    rig.advance(0)
    assert [record.value for record in rig.records].count(None) == 1_000


@pytest.mark.parametrize("key", [("gone-topics",), ("retention",)])
def test_o2_a_turn_looks_at_a_limited_number_of_offsets(key: tuple[str, ...]) -> None:
    rig = Rig()
    for number in range(22_000):
        rig.commit(1, partition=number % 1_000, group_id=f"g{number // 1_000}")
    rig.timers[key], turns = rig.now_ms, []
    while rig.timers.pop(key, None) == rig.now_ms:
        turns.append(steps(lambda: rig.run(rig.shard.timer(key, rig.now_ms)))[0])
    assert len(turns) == 3
    assert max(turns) < sum(turns) / 2


# -- deletion


def test_g18_offsets_of_topics_without_subscribers_can_be_deleted() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    rig.commit(1, member_id=member, generation=1)
    rig.commit(2, member_id=member, generation=1, topic="formerly")
    refused = OffsetDeleteResponsePartition(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert delete(rig, 0).topics == (OffsetDeleteResponseTopic("words", (refused,)),)
    granted = tuple(OffsetDeleteResponsePartition(p) for p in (0, 1))
    assert delete(rig, 0, 1, topic="formerly").topics == (OffsetDeleteResponseTopic("formerly", granted),)
    assert [record.value for record in rig.records].count(None) == 1
    rig.leave(member)
    delete(rig, 0)
    assert rig.fetch().committed_offset == -1


def test_g18_offset_delete_refusals() -> None:
    rig = Rig()
    assert delete(rig, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    rig.join(protocol_type="connect", two_steps=False)
    assert delete(rig, 0).error_code == ErrorCode.NON_EMPTY_GROUP


def test_a_deletion_takes_pending_offsets_with_it() -> None:
    rig = Rig()
    rig.commit_in_transaction(5)
    delete(rig, 0)
    assert rig.fetch(require_stable=True).error_code == ErrorCode.NONE
    rig.marker(7, commit=True)
    assert rig.fetch().committed_offset == -1
    rig.crash()
    assert rig.fetch().committed_offset == -1


@pytest.mark.parametrize("current", [None, OTHER_ID])
@pytest.mark.parametrize("loads", [False, True])
def test_o2_offsets_of_deleted_topics_are_deleted(loads: bool, current: bytes | None) -> None:
    rig = Rig()
    rig.topic_ids["words"] = TOPIC_ID
    rig.commit(1, partition=0, topic_id=TOPIC_ID)
    rig.commit(1, topic="other", topic_id=TOPIC_ID)
    rig.commit_in_transaction(1, partition=3)
    rig.topic_ids["words"] = current
    if loads:
        rig.crash()
    else:
        rig.run(rig.shard.topics_deleted())
    assert rig.fetch(0).committed_offset == -1
    assert rig.fetch(3, require_stable=True).error_code == ErrorCode.NONE
    rig.marker(7, commit=True)
    assert rig.fetch(3).committed_offset == -1
    assert [record.value for record in rig.records].count(None) == 2


def test_o2_offsets_of_the_topic_that_has_the_name_now_stay() -> None:
    rig = Rig()
    rig.topic_ids["words"] = TOPIC_ID
    rig.commit_in_transaction(1, partition=1, producer_id=7)
    rig.commit_in_transaction(1, partition=2)
    rig.topic_ids["words"] = OTHER_ID
    rig.commit(2, partition=0, topic_id=OTHER_ID)
    rig.commit(2, partition=1, topic_id=OTHER_ID)
    rig.commit(2, partition=3)  # by an older broker, which wrote no ids
    rig.run(rig.shard.topics_deleted())
    rig.marker(7, commit=True)
    assert [rig.fetch(each).committed_offset for each in range(4)] == [2, 2, -1, 2]


def test_o2_tombstones_of_a_deleted_topic_are_written_again_when_the_disk_was_full() -> None:
    rig = Rig()
    rig.commit(1)
    rig.topic_ids["words"] = None
    rig.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
    rig.run(rig.shard.topics_deleted())
    assert rig.fetch().committed_offset == 1
    rig.advance(rig.config.append_retry_ms)
    assert rig.fetch().committed_offset == -1


def test_o2_a_shard_that_cannot_write_tombstones_as_it_loads_watches_its_members_all_the_same() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    rig.commit(1, topic="gone", member_id=member, generation=1)
    rig.topic_ids["gone"] = None
    rig.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
    rig.crash()
    assert ("heartbeat", GROUP, member) in rig.timers
    rig.advance(rig.config.append_retry_ms)
    assert [record.value for record in rig.records].count(None) == 1


def test_o2_the_offsets_of_a_deleted_topic_go_in_several_batches_each_group_looked_at_once() -> None:
    rig = Rig()
    for number in range(3):
        for partition in range(500):
            rig.commit(1, partition=partition, group_id=f"g{number}")
    asked: list[str] = []

    def topic_id(name: str) -> bytes | None:
        asked.append(name)
        return None

    rig.shard = recover(rig.config, rig.log, rig.now_ms, topic_id)
    for decision in rig.shard.loaded(rig.now_ms):
        rig.run(decision)
    assert [record.value for record in rig.records].count(None) == 1_000
    rig.advance(0)
    assert [record.value for record in rig.records].count(None) == 1_500
    assert len(asked) == 3


@pytest.mark.parametrize("state", [GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.EMPTY])
def test_g18_only_empty_groups_can_be_deleted(state: GroupState) -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    rig.commit(5, member_id=member, generation=1)
    rig.commit_in_transaction(6, partition=1)
    if state is GroupState.PREPARING_REBALANCE:
        rig.join_twice(offered=protocols("range"), rebalance_ms=REBALANCE_MS)
    elif state is GroupState.EMPTY:
        rig.leave(member)
    assert rig.state() is state
    token = rig.token()
    rig.run(rig.shard.delete_group(token, GROUP))
    deleted = state is GroupState.EMPTY
    assert rig.answer(token).error_code == (ErrorCode.NONE if deleted else ErrorCode.NON_EMPTY_GROUP)
    assert (rig.shard.group(GROUP) is None) == deleted
    if deleted:
        assert [record.key[:2] for record in rig.records[-3:]] == [b"\x00\x01", b"\x00\x01", b"\x00\x02"]
        rig.crash()
        assert list(rig.shard.list_groups()) == []
