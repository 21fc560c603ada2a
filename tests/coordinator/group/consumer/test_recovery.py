"""A consumer group is in its log as Apache Kafka writes it: recovery, static members, regular expressions, offsets."""

from __future__ import annotations

import pytest

from ottla.assign.server.order import member_ids, partitions, uuid_hash
from ottla.base.steps import result_of
from ottla.coordinator.decision import LogRecord
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.consumer.states import GroupState
from ottla.coordinator.group.consumer.topics import Topic, TopicHashes, topic_hash
from ottla.wire.consumer_group_records import RECORD_TYPES
from ottla.wire.errors import ErrorCode
from ottla.wire.offsets_records import record_type
from tests.coordinator.group.consumer.rig import GROUP, FakeMember, Metadata, Rig, settle


def test_g17_a_group_goes_on_after_a_crash_where_it_was() -> None:
    rig = Rig()
    first, second = rig.joined("m1"), rig.joined("m2")
    settle(first, second)
    before = result_of(rig.shard.describe_consumer_group(GROUP))
    rig.crash()
    assert result_of(rig.shard.describe_consumer_group(GROUP)) == before
    epochs = first.epoch, second.epoch
    settle(first, second)
    assert (first.epoch, second.epoch) == epochs


def test_a_crash_while_a_member_gives_up_loses_nothing() -> None:
    rig = Rig()
    first, second = rig.joined("m1", rebalance_timeout_ms=10_000), rig.joined("m2")
    had = first.said()
    first.beat()
    rig.crash()
    second.beat()
    assert second.partitions == []  # the first has not said that it gave up anything
    rig.advance(9_000)
    first.beat(topic_partitions=had)
    second.beat()
    rig.advance(1_000)  # the time to give up began anew with the crash
    assert list(rig.group.members) == ["m2"]
    settle(second)
    assert second.partitions == [0, 1, 2, 3]


def test_sessions_begin_anew_after_a_crash() -> None:
    rig = Rig()
    rig.joined("m1")
    rig.advance(44_000)
    rig.crash()
    rig.advance(44_999)
    assert rig.group.members
    rig.advance(1)
    assert not rig.group.members


@pytest.mark.parametrize("topics", [("words", "lines"), ()])
def test_g19_a_regular_expression_is_resolved_beside_the_heartbeats(topics: tuple[str, ...]) -> None:
    rig = Rig(Metadata(words=2, lines=1, others=1))
    member = FakeMember(rig, "m1", subscribed_topic_names=topics, subscribed_topic_regex="[wl].*s")
    rig.advance(0)
    assert rig.group.regexes["[wl].*s"].topics == {"words", "lines"}
    member.beat()
    assert member.partitions == [0, 0, 1]
    rig.crash()
    assert member.beat().error_code == ErrorCode.NONE
    rig.metadata.make("lists", 1)
    rig.advance(10_001)
    member.beat()
    rig.advance(0)
    member.beat()
    assert len(member.partitions) == 4
    member.leave()
    assert not rig.group.regexes


def test_a_regular_expression_that_re2_refuses() -> None:
    rig = Rig()
    answer = rig.join("m1", subscribed_topic_names=None, subscribed_topic_regex="(a")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message is not None
    assert answer.error_message.startswith("SubscribedTopicRegex `(a` is not a valid regular expression: missing )")
    assert rig.shard.consumer_groups.find(GROUP) is None


def test_g15_a_static_member_comes_back_without_a_new_epoch() -> None:
    rig = Rig()
    first, second = rig.joined("m1", instance_id="i1"), rig.joined("m2", instance_id="i2")
    settle(first, second)
    epoch = rig.group.epoch
    assert second.leave(-2).member_epoch == -2
    rig.crash()
    third = rig.joined("m3", instance_id="i2")
    assert (rig.group.epoch, third.partitions) == (epoch, second.partitions)
    assert second.beat().error_code == ErrorCode.FENCED_INSTANCE_ID
    rig.advance(45_000)
    assert rig.group.state is GroupState.EMPTY


def test_g15_a_member_that_takes_another_instance_id_frees_the_one_it_had() -> None:
    rig = Rig()
    rig.joined("m1", instance_id="i1")
    moved = rig.joined("m1", instance_id="i2")
    assert rig.group.static_members == {"i2": "m1"}
    rig.crash()
    assert rig.group.static_members == {"i2": "m1"}
    moved.leave()
    newcomer = rig.joined("m3", instance_id="i1")
    assert newcomer.partitions == [0, 1, 2, 3]
    assert rig.join("m4", instance_id="i2").error_code == ErrorCode.NONE


def test_a_static_member_that_stays_away_is_expelled() -> None:
    rig = Rig()
    first, second = rig.joined("m1", instance_id="i1"), rig.joined("m2", instance_id="i2")
    settle(first, second)
    second.leave(-2)
    rig.advance(44_000)
    first.beat()
    rig.advance(1_000)
    assert list(rig.group.members) == ["m1"]


def test_a_group_that_is_deleted_leaves_nothing() -> None:
    rig = Rig()
    member = FakeMember(rig, "m1", subscribed_topic_regex="w.*")
    rig.advance(0)
    member.leave()
    token = rig.token()
    rig.run(rig.shard.delete_group(token, GROUP))
    assert rig.answers[token].error_code == ErrorCode.NONE
    assert list(rig.shard.list_groups()) == []
    last: dict[bytes, LogRecord] = {record.key: record for record in rig.log}
    assert all(record.value is None for record in last.values())
    assert {record_type(key) for key in last} <= RECORD_TYPES
    rig.crash()
    assert list(rig.shard.list_groups()) == []


def test_a_log_without_the_records_that_compaction_removed() -> None:
    rig = Rig()
    first, second = rig.joined("m1"), rig.joined("m2")
    settle(first, second)
    second.leave()
    settle(first)
    before = result_of(rig.shard.describe_consumer_group(GROUP))
    last = {record.key: record for record in rig.log}
    rig.log = [record for record in rig.log if last[record.key] is record and record.value is not None]
    rig.crash()
    assert result_of(rig.shard.describe_consumer_group(GROUP)) == before


def test_an_older_kafkas_record_of_topics_is_deleted() -> None:
    rig = Rig()
    member = rig.joined("m1")
    key = b"\0\4" + len(GROUP).to_bytes(2, "big") + GROUP.encode()
    rig.log.append(LogRecord(key, b"\0\0\1\0"))
    rig.crash()
    member.beat()
    assert rig.log[-1] == LogRecord(key, None)


def test_an_assignor_that_fails_keeps_the_target() -> None:
    rig = Rig(config=GroupConfig(consumer_assignment_interval_ms=0), assignors={"slow": _Slow()})
    rig.joined("m1")
    (job,) = rig.jobs
    assert (job.group_id, job.epoch, rig.group.state) == (GROUP, 2, GroupState.ASSIGNING)
    rig.run(rig.shard.assigned(job, None, rig.now_ms))
    rig.joined("m1")
    assert len(rig.jobs) == 1  # it is not asked again at once
    rig.advance(30_000)
    member = rig.joined("m1")
    rig.run(rig.shard.assigned(rig.jobs[1], {"m1": {rig.metadata.id_of("words"): (0, 3)}}, rig.now_ms))
    member.beat()
    assert (member.epoch, member.partitions) == (2, [0, 3])


class _Slow:
    name = "slow"

    def assign(self, group: object) -> dict[str, dict[bytes, tuple[int, ...]]]:
        raise AssertionError("the runtime calls it, not the shard")


def test_the_hash_of_topics_is_kafkas() -> None:
    """Figures of hash4j, the library that Apache Kafka 4.3.0 takes, over what its `Utils.computeTopicHash` puts in."""
    words = Topic("words", bytes(range(16)), 3)
    lines = Topic("lines", bytes(range(16, 32)), 2, (("a", "bb"), ("c",)))
    assert (topic_hash(words), topic_hash(lines)) == (-9183768233566661698, -2113610446374133960)


def test_java_orders_members_and_topics_by_their_hashes() -> None:
    assert member_ids(["b", "a", "consumer-10", "consumer-2"]) == ["a", "b", "consumer-10", "consumer-2"]
    assert partitions(range(100, 84, -1)) == [96, 97, 98, 99, 100, *range(85, 96)]
    assert uuid_hash(bytes(range(16))) == 0


def test_hashes_are_kept_as_long_as_the_topic_is_the_same() -> None:
    metadata = Metadata(words=2)
    hashes = TopicHashes(metadata)
    before = hashes.of_group(["words", "none"])
    assert hashes.of_group(["words"]) == before
    metadata.make("words", 3)
    assert hashes.of_group(["words"]) != before
    assert hashes.of_group(["none"]) == 0
