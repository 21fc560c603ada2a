"""What an administrator does with groups (SPEC G18), told once and gone on our own broker and on Apache Kafka."""

from collections.abc import Callable

import pytest

from ottla import Admin, KafkaError, OffsetAndMetadata, TopicPartition
from ottla.wire.errors import ErrorCode
from tests.client.journeys import fresh, make_topic, member, partitions_of, poll_until
from tests.recording.current import Producer


def g18_groups_are_listed_by_state_and_by_type(servers: str) -> None:
    topic, with_member, without = make_topic(servers), fresh("g18-member"), fresh("g18-empty")
    with Admin({"bootstrap.servers": servers}) as admin, member(servers, with_member) as consumer:
        admin.alter_group_offsets(without, {TopicPartition(topic, 0): OffsetAndMetadata(0)})
        consumer.subscribe([topic])
        poll_until(consumer, lambda: bool(consumer.assignment()))

        def listed(**filters: list[str]) -> set[str]:
            return {each.group_id for each in admin.list_groups(**filters)} & {with_member, without}

        assert listed() == listed(types=["classic"]) == listed(states=["Stable", "Empty"]) == {with_member, without}
        assert listed(states=["stable"]) == listed(states=["Stable"], types=["Classic"]) == {with_member}
        assert listed(states=["Empty"]) == {without}
        assert listed(types=["consumer"]) == listed(states=["Dead"]) == set()
        (found,) = (each for each in admin.list_groups() if each.group_id == with_member)
        assert (found.protocol_type, found.state, found.type) == ("consumer", "Stable", "classic")


def g18_a_group_is_described_with_what_its_members_subscribe_to(servers: str) -> None:
    topic, group = make_topic(servers, 2), fresh("g18-described")
    with Admin({"bootstrap.servers": servers}) as admin, member(servers, group, group_instance_id="one") as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment()) == 2)
        found = admin.describe_groups([group])[group]
        assert (found.exists, found.state, found.type, found.protocol) == (True, "Stable", "classic", "range")
        assert found.coordinator in {node.node_id for node in admin.describe_cluster().nodes}
        (one,) = found.members
        assert (one.group_instance_id, one.topics, one.partitions) == ("one", (topic,), tuple(partitions_of(topic, 2)))


def g18_members_are_removed_by_their_ids(servers: str) -> None:
    topic, group = make_topic(servers), fresh("g18-removed")

    def gone_without_leaving(**more: object) -> str:
        one = member(servers, group, session_timeout_ms=60_000, **more)
        one.subscribe([topic])
        poll_until(one, lambda: one.group_metadata().generation_id > 0)
        member_id = one.group_metadata().member_id
        one.close(leave_group=False)
        return member_id

    def left() -> set[str]:
        return {each.member_id for each in admin.describe_groups([group])[group].members}

    with Admin({"bootstrap.servers": servers}) as admin:
        first = gone_without_leaving()
        assert left() == {first}
        assert admin.remove_members(group, [first], reason="a test") == [first]
        assert left() == set()
        static = gone_without_leaving(group_instance_id="one")
        assert admin.remove_members(group, instances=["one"]) == [static]
        assert left() == set()
        last = gone_without_leaving()
        with pytest.raises(KafkaError, match=f"group {group} has no member nobody") as refused:
            admin.remove_members(group, ["nobody"])
        assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
        assert left() == {last}
        assert admin.remove_members(group) == [last]
        assert admin.remove_members(group) == []
        with pytest.raises(KafkaError) as unknown:
            admin.remove_members(fresh("g18-nobodys"))
        assert unknown.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def g18_offsets_of_topics_that_nobody_reads_are_deleted(servers: str) -> None:
    read, unread, group = make_topic(servers, 2), make_topic(servers, 3), fresh("g18-offsets")
    both = [*partitions_of(read, 2), *partitions_of(unread, 3)]
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.alter_group_offsets(group, dict.fromkeys(both, OffsetAndMetadata(0)))
        with member(servers, group) as consumer:
            consumer.subscribe([read])
            poll_until(consumer, lambda: len(consumer.assignment()) == 2)
            with pytest.raises(KafkaError, match=f"{read}-0") as refused:
                admin.delete_group_offsets(group, [*partitions_of(read, 1), *partitions_of(unread, 1)])
            assert refused.value.code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            admin.delete_group_offsets(group, [TopicPartition(unread, 2)])
            assert set(admin.list_group_offsets(group)) == {*partitions_of(read, 2), TopicPartition(unread, 1)}
        admin.delete_group_offsets(group, [TopicPartition(read, 0), TopicPartition(unread, 2)])
        assert set(admin.list_group_offsets(group)) == {TopicPartition(read, 1), TopicPartition(unread, 1)}
        with pytest.raises(KafkaError) as unknown:
            admin.delete_group_offsets(fresh("g18-nobodys"), [TopicPartition(read, 0)])
        assert unknown.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def g18_lag_is_told_in_offsets_and_in_time(servers: str) -> None:
    topic, group = make_topic(servers, 5), fresh("g18-lag")
    behind, at_the_end, over_markers, deleted, never = partitions_of(topic, 5)
    now_ms = 1_700_000_100_000
    with (
        Admin({"bootstrap.servers": servers}) as admin,
        Producer({"bootstrap.servers": servers, "linger.ms": 1_000}) as producer,
        Producer({"bootstrap.servers": servers, "transactional.id": fresh("g18")}) as transactional,
    ):
        for number in range(10):
            for tp in (behind, at_the_end, deleted, never):
                producer.send(topic, b"x", partition=tp.partition, timestamp_ms=now_ms - 10_000 + number * 1_000)
        producer.flush()
        transactional.init_transactions()
        for _ in range(2):
            with transactional.transaction():
                transactional.send(topic, b"x", partition=over_markers.partition, timestamp_ms=now_ms - 5_000)
        committed = {behind: 3, at_the_end: 10, over_markers: 1, deleted: 0}
        admin.alter_group_offsets(group, {tp: OffsetAndMetadata(at) for tp, at in committed.items()})
        admin.delete_records({deleted: 8})
        lags = admin.list_group_lags(group, [never])
    assert {tp: (lag.offsets, lag.age_ms(now_ms)) for tp, lag in lags.items()} == {
        behind: (7, 7_000),
        at_the_end: (0, 0),
        # offset 1 is the first marker: the record behind it is the first that is not read, and its marker counts, too
        over_markers: (3, 5_000),
        deleted: (10, 2_000),
        never: (None, None),
    }
    assert (lags[deleted].start_offset, lags[never].end_offset) == (8, 10)


ALL: list[Callable[[str], None]] = [
    g18_groups_are_listed_by_state_and_by_type,
    g18_a_group_is_described_with_what_its_members_subscribe_to,
    g18_members_are_removed_by_their_ids,
    g18_offsets_of_topics_that_nobody_reads_are_deleted,
    g18_lag_is_told_in_offsets_and_in_time,
]
