"""What users do with the clients, told once and gone on our own broker and on Apache Kafka.

Each journey takes the address of a broker, and uses topics, groups and transactional ids of its own.
"""

import re
import time
import uuid
from collections.abc import Callable

import pytest

import ottla
from ottla import (
    Admin,
    ConsumerRecord,
    Delivery,
    NewTopic,
    OffsetAndMetadata,
    OffsetReset,
    OffsetSpec,
    TopicPartition,
)
from ottla.client.errors import (
    FencedInstanceIdError,
    IllegalStateError,
    MaxPollIntervalExceededError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tests.client import markers
from tests.client.cooperative import CooperativeRoundRobin
from tests.recording.current import Consumer, Producer

PATIENCE_S = 30.0


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def make_topic(servers: str, partitions: int = 1, prefix: str = "journey") -> str:
    name = fresh(prefix)
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic(name, partitions, 1)])
    return name


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def read_all(
    servers: str, topic: str, partitions: int = 1, *, isolation: str = "read_committed"
) -> list[ConsumerRecord]:
    """Everything that is in the topic now, of all transactions that have ended."""
    markers.all_written(servers)
    config = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "isolation.level": isolation}
    with Consumer(config) as consumer:
        assigned = partitions_of(topic, partitions)
        ends = consumer.end_offsets(assigned)
        consumer.assign(assigned)
        found: list[ConsumerRecord] = []
        while any(consumer.position(tp) < ends[tp] for tp in assigned):
            found += consumer.poll(1.0)  # aborted records move the position, and end no poll
        return found


def poll_until(consumer: ottla.Consumer, done: Callable[[], bool]) -> list[ConsumerRecord]:
    """Poll until `done`, at most PATIENCE_S of waiting; what came."""
    found: list[ConsumerRecord] = []
    for _ in range(int(PATIENCE_S / 0.05)):
        found += consumer.poll(0.05)
        if done():
            return found
    raise AssertionError(f"it did not happen; {len(found)} records came")


# --- producing and consuming ---


def records_come_back_as_they_were_sent(servers: str) -> None:
    topic = make_topic(servers)
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        with Producer({"bootstrap.servers": servers, "compression.type": compression}) as producer:
            headers = [("a", b"1"), ("a", None), ("ü", b"")]
            sent = producer.send(topic, compression.encode(), key=b"k", headers=headers, timestamp_ms=1_234)
            producer.send(topic, None, key=None)
            assert sent.result(PATIENCE_S).timestamp_ms == 1_234
    found = read_all(servers, topic)
    assert [record.value for record in found[::2]] == [b"none", b"gzip", b"snappy", b"lz4", b"zstd"]
    assert all(record.value is None and record.key is None for record in found[1::2])
    assert {(r.key, r.headers, r.timestamp_ms) for r in found[::2]} == {
        (b"k", (("a", b"1"), ("a", None), ("ü", b"")), 1_234)
    }
    assert [record.offset for record in found] == list(range(10))


def every_acks_setting_writes(servers: str) -> None:
    topic = make_topic(servers)
    for acks in ("all", "1", "0"):
        with Producer({"bootstrap.servers": servers, "acks": acks}) as producer:
            done: list[Delivery] = []
            delivery = producer.send(topic, acks.encode(), on_delivery=done.append)
            producer.flush(PATIENCE_S)
            assert delivery.done()
            assert delivery.exception() is None
            assert (done[0].result().offset == -1) == (acks == "0")
    assert [record.value for record in read_all(servers, topic)] == [b"all", b"1", b"0"]


def p4_order_holds_with_many_small_batches_in_flight(servers: str) -> None:
    topic = make_topic(servers)
    with Producer({"bootstrap.servers": servers, "batch.size": 200, "linger.ms": 0}) as producer:
        for number in range(2_000):
            producer.send(topic, b"%d" % number)
    assert [record.value for record in read_all(servers, topic)] == [b"%d" % n for n in range(2_000)]


def p6_equal_records_are_two_records(servers: str) -> None:
    topic = make_topic(servers)
    with Producer({"bootstrap.servers": servers}) as producer:
        first, second = producer.send(topic, b"same"), producer.send(topic, b"same")
        assert second.result(PATIENCE_S).offset == first.result().offset + 1


def columns_go_in_and_out(servers: str) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = make_topic(servers, 2)
    rows = pa.record_batch(
        {
            "value": [b"%d" % n for n in range(1_000)],
            "key": [b"k", None] * 500,
            "partition": pa.array([n % 2 for n in range(1_000)], pa.int32()),
            "timestamp_ms": list(range(1_000)),
        }
    )
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send_arrow(topic, rows)
        producer.flush(PATIENCE_S)
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(partitions_of(topic, 2))
        found: dict[int, list[bytes]] = {0: [], 1: []}
        while sum(map(len, found.values())) < 1_000:
            for tp, columns in consumer.poll_arrow(PATIENCE_S).items():
                found[tp.partition] += columns.column("value").to_pylist()
                assert columns.column("timestamp_ms").to_pylist()[-1] == int(found[tp.partition][-1])
    assert found[1] == [b"%d" % n for n in range(1, 1_000, 2)]


def columns_are_what_was_sent_where_memory_of_batches_is_used_again(servers: str) -> None:
    pa = pytest.importorskip("pyarrow")
    topic, tables = make_topic(servers), 30
    texts = [[b"%07d" % (10_000 * table + row) * 10 for row in range(10_000)] for table in range(tables)]
    with Producer({"bootstrap.servers": servers, "buffer.memory": 4_000_000}) as producer:
        for text in texts:
            producer.send_arrow(topic, pa.record_batch({"value": text}))
        producer.flush(PATIENCE_S)
    found: list[bytes] = []
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(partitions_of(topic, 1))
        while len(found) < 10_000 * tables:
            for columns in consumer.poll_arrow(PATIENCE_S).values():
                found += columns.column("value").to_pylist()
    assert found == [value for text in texts for value in text]


# --- groups ---


def member(servers: str, group: str, **more: object) -> Consumer:
    """`more`: `protocol`, and keys with underscores for dots."""
    protocol = more.pop("protocol", "classic")
    config: dict[str, object] = {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
    }
    if protocol == "classic":
        config |= {"heartbeat.interval.ms": 100, "session.timeout.ms": 10_000}
    return Consumer(config | {key.replace("_", "."): value for key, value in more.items()})


def g11_members_share_and_take_over(servers: str) -> None:
    topic, group = make_topic(servers, 4), fresh("g11")
    said: list[tuple[str, list[int]]] = []

    def hear(what: str) -> Callable[[list[TopicPartition]], object]:
        return lambda tps: said.append((what, [tp.partition for tp in tps]))

    with member(servers, group) as first:
        first.subscribe([topic], on_assigned=hear("assigned"), on_revoked=hear("revoked"), on_lost=hear("lost"))
        poll_until(first, lambda: len(first.assignment()) == 4)
        with member(servers, group) as second:
            second.subscribe([topic])

            def both() -> bool:
                second.poll(0.05)
                return len(first.assignment()) == len(second.assignment()) == 2

            poll_until(first, both)
            assert first.assignment() | second.assignment() == set(partitions_of(topic, 4))
            assert first.group_metadata().generation_id == second.group_metadata().generation_id
        poll_until(first, lambda: len(first.assignment()) == 4)
    assert said[:2] == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]
    assert said[-1] == ("revoked", [0, 1, 2, 3])
    assert not [what for what, _ in said if what == "lost"]


def g14_in_the_cooperative_protocol_only_what_moves_is_given_up(servers: str) -> None:
    topic, group = make_topic(servers, 4), fresh("g14")
    said: list[tuple[str, int]] = []
    cooperative = {"partition_assignment_strategy": [CooperativeRoundRobin]}
    with member(servers, group, **cooperative) as first, member(servers, group, **cooperative) as second:
        first.subscribe(
            [topic],
            on_assigned=lambda tps: said.append(("assigned", len(tps))),
            on_revoked=lambda tps: said.append(("revoked", len(tps))),
        )
        poll_until(first, lambda: len(first.assignment()) == 4)
        second.subscribe([topic])

        def both() -> bool:
            second.poll(0.05)
            assert len(first.assignment()) >= 2, "it went on with what it keeps"
            return len(first.assignment()) == len(second.assignment()) == 2

        poll_until(first, both)
        assert not first.assignment() & second.assignment()
        assert said[:3] == [("assigned", 4), ("revoked", 2), ("assigned", 0)]


def g9_who_does_not_poll_in_time_leaves_the_group_and_is_told_so(servers: str, protocol: str = "classic") -> None:
    topic, group = make_topic(servers, 2), fresh("g9")
    wanted = set(partitions_of(topic, 2))
    with (
        member(servers, group, protocol=protocol, max_poll_interval_ms=1_000) as slow,
        member(servers, group, protocol=protocol) as other,
    ):
        slow.subscribe([topic])
        poll_until(slow, lambda: slow.assignment() == wanted)
        other.subscribe([topic])
        poll_until(other, lambda: other.assignment() == wanted)  # for as long as slow does not poll
        polled_s = time.monotonic()
        with pytest.raises(MaxPollIntervalExceededError, match=r"interval\.ms allows 1000: .* has left") as told:
            slow.poll(0)
        assert told.value.took_ms >= told.value.allowed_ms == 1_000

        def both() -> bool:
            nonlocal polled_s
            before_s, polled_s = polled_s, time.monotonic()
            try:
                slow.poll(0.05)
            except MaxPollIntervalExceededError:  # the machine has stopped this process for so long: it joins again
                assert time.monotonic() - before_s >= 1.0, "it was polled in time"
            return len(slow.assignment()) == len(other.assignment()) == 1

        poll_until(other, both)


def g10_who_closes_without_leaving_is_kept_until_its_session_ends(servers: str) -> None:
    for leave in (False, True):
        topic, group = make_topic(servers), fresh("g10")
        one = member(servers, group, session_timeout_ms=60_000)
        one.subscribe([topic])
        poll_until(one, lambda: len(one.assignment()) == 1)  # noqa: B023
        member_id = one.group_metadata().member_id
        one.close(leave_group=leave)
        with Admin({"bootstrap.servers": servers}) as admin:
            kept = [each.member_id for each in admin.describe_groups([group])[group].members]
        assert (member_id in kept) is not leave


def g13_a_rebalance_callback_may_commit(servers: str, protocol: str = "classic") -> None:
    topic, group = make_topic(servers), fresh("g13")
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send(topic, b"1")
    consumer = member(servers, group, protocol=protocol, enable_auto_commit=False)
    consumer.subscribe([topic], on_revoked=lambda tps: consumer.commit())
    assert (
        len(
            poll_until(
                consumer, lambda: bool(consumer.assignment()) and consumer.position(TopicPartition(topic, 0)) == 1
            )
        )
        == 1
    )
    consumer.close()
    with Admin({"bootstrap.servers": servers}) as admin:
        assert admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset == 1


def g15_a_static_member_comes_back_without_a_rebalance(servers: str) -> None:
    topic, group = make_topic(servers, 2), fresh("g15")
    first = member(servers, group, group_instance_id="one")
    first.subscribe([topic])
    poll_until(first, lambda: len(first.assignment()) == 2)
    generation = first.group_metadata().generation_id
    first.close()
    with member(servers, group, group_instance_id="one") as again:
        again.subscribe([topic])
        poll_until(again, lambda: len(again.assignment()) == 2)
        assert again.group_metadata().generation_id == generation
        with member(servers, group, group_instance_id="one") as usurper:
            usurper.subscribe([topic])
            poll_until(usurper, lambda: len(usurper.assignment()) == 2)
            for _ in range(2):  # and it stays so: it does not take the id back
                with pytest.raises(FencedInstanceIdError):
                    poll_until(again, lambda: False)
            usurper.poll(0.3)
            assert len(usurper.assignment()) == 2


def g11_a_pattern_takes_in_new_topics(servers: str, protocol: str = "classic") -> None:
    prefix = fresh("regex")
    first = make_topic(servers, prefix=prefix)
    with member(servers, fresh("g11"), protocol=protocol, metadata_max_age_ms=200) as consumer:
        consumer.subscribe(re.compile(re.escape(prefix) + ".*"))
        poll_until(consumer, lambda: consumer.assignment() == {TopicPartition(first, 0)})
        second = make_topic(servers, 2, prefix=prefix)
        wanted = {TopicPartition(first, 0), *partitions_of(second, 2)}
        poll_until(consumer, lambda: consumer.assignment() == wanted)
        with Admin({"bootstrap.servers": servers}) as admin:
            admin.create_partitions({first: 2})
        poll_until(consumer, lambda: consumer.assignment() == wanted | {TopicPartition(first, 1)})


def o4_positions_are_committed_in_every_way(servers: str, protocol: str = "classic") -> None:
    topic, group = make_topic(servers), fresh("o4")
    tp = TopicPartition(topic, 0)
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    with member(servers, group, protocol=protocol, enable_auto_commit=False, max_poll_records=4) as consumer:
        consumer.subscribe([topic])
        assert len(poll_until(consumer, lambda: bool(consumer.assignment()) and consumer.position(tp) >= 4)) == 4
        consumer.commit()
        assert consumer.committed([tp])[tp].offset == 4
        heard: list[object] = []
        consumer.commit_async({tp: OffsetAndMetadata(2, "note")}, lambda offsets, error: heard.append(error))
        poll_until(consumer, lambda: bool(heard))
        assert heard == [None]
        assert consumer.committed([tp])[tp][:2] == (2, "note")
    with member(servers, group, protocol=protocol, max_poll_records=4) as consumer:  # what close commits
        consumer.subscribe([topic])
        poll_until(consumer, lambda: bool(consumer.assignment()) and consumer.position(tp) == 6)
    with Admin({"bootstrap.servers": servers}) as admin:
        assert admin.list_group_offsets(group)[tp].offset == 6
        assert admin.describe_groups([group])[group].state == "Empty"
        admin.alter_group_offsets(group, {tp: OffsetAndMetadata(1)})
        assert admin.list_group_offsets(group, [tp])[tp].offset == 1
        assert group in {listed.group_id for listed in admin.list_groups()}
        admin.delete_groups([group])
        assert group not in {listed.group_id for listed in admin.list_groups()}


# --- positions ---


def c1_positions_can_be_chosen(servers: str) -> None:
    topic = make_topic(servers)
    tp = TopicPartition(topic, 0)
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp_ms=1_000 + number)
    with Consumer({"bootstrap.servers": servers}) as consumer:
        consumer.assign([tp])
        assert consumer.position(tp) == 10
        consumer.seek(tp, 3)
        assert consumer.poll(PATIENCE_S)[0].offset == 3
        assert consumer.current_lag(tp) == 0
        consumer.seek_to_beginning([tp])
        consumer.pause([tp])
        assert consumer.poll(0.1) == []
        assert consumer.paused() == {tp}
        consumer.resume([tp])
        assert consumer.poll(PATIENCE_S)[0].offset == 0
        consumer.seek_to_end()
        assert consumer.position(tp) == 10
        assert consumer.beginning_offsets([tp]) == {tp: 0}
        assert consumer.end_offsets([tp]) == {tp: 10}
        assert consumer.offsets_for_times({tp: 1_004})[tp][:2] == (4, 1_004)
        assert consumer.offsets_for_times({tp: 9_999}) == {}
        with pytest.raises(IllegalStateError, match="not assigned"):
            consumer.position(TopicPartition(topic, 1))
        with pytest.raises(IllegalStateError, match=r"group\.id"):
            consumer.commit({tp: OffsetAndMetadata(1)})


def c1_a_position_is_found_while_news_come_in(servers: str) -> None:
    topic = make_topic(servers, 2)
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send(topic, b"1", partition=0)
    with Consumer({"bootstrap.servers": servers, "isolation.level": "read_committed"}) as consumer:
        tps = partitions_of(topic, 2)
        consumer.assign(tps)
        consumer.seek_to_beginning()
        consumer.resume(tps)  # wakes whoever waits, without a position to show
        assert [consumer.position(tp, PATIENCE_S) for tp in tps] == [0, 0]


def o5_a_reset_says_how_many_records_were_skipped(servers: str) -> None:
    topic = make_topic(servers)
    tp = TopicPartition(topic, 0)
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send(topic, b"only")
    resets: list[OffsetReset] = []
    config = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    with Consumer(config, on_reset=resets.append) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 100)
        assert [record.value for record in consumer.poll(PATIENCE_S)] == [b"only"]
        poll_until(consumer, lambda: bool(resets))
    assert resets == [OffsetReset(tp, 100, 0)]
    assert resets[0].skipped == 0
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "none"}) as consumer:
        consumer.assign([tp])
        with pytest.raises(NoOffsetForPartitionError):
            consumer.poll(PATIENCE_S)


# --- admin ---


def admin_deletes_records(servers: str) -> None:
    topic = make_topic(servers, 2)
    first, second = partitions_of(topic, 2)
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=number % 2)
    with Admin({"bootstrap.servers": servers}) as admin:
        assert admin.delete_records({first: 3, second: -1}) == {first: 3, second: 5}
        assert admin.delete_records({first: 1}) == {first: 3}
        earliest = admin.list_offsets(dict.fromkeys([first, second], OffsetSpec.EARLIEST))
        assert {tp: at.offset for tp, at in earliest.items()} == {first: 3, second: 5}
        with pytest.raises(OffsetOutOfRangeError):
            admin.delete_records({first: 99})


def admin_looks_after_topics(servers: str) -> None:
    name = fresh("admin")
    with Admin({"bootstrap.servers": servers}) as admin:
        ids = admin.create_topics([NewTopic(name, 2, 1, {"retention.ms": "123456"})])
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(name, 2, 1)])
        described = admin.describe_topics([name])[name]
        assert (described.topic_id, len(described.partitions)) == (ids[name], 2)
        assert name in {topic.name for topic in admin.list_topics()}
        assert admin.describe_cluster().nodes
        admin.delete_topics([name])
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics([fresh("missing")])


BLOCKING: list[Callable[[str], None]] = [
    records_come_back_as_they_were_sent,
    every_acks_setting_writes,
    p4_order_holds_with_many_small_batches_in_flight,
    p6_equal_records_are_two_records,
    columns_go_in_and_out,
    columns_are_what_was_sent_where_memory_of_batches_is_used_again,
    g11_members_share_and_take_over,
    g9_who_does_not_poll_in_time_leaves_the_group_and_is_told_so,
    g10_who_closes_without_leaving_is_kept_until_its_session_ends,
    g13_a_rebalance_callback_may_commit,
    g14_in_the_cooperative_protocol_only_what_moves_is_given_up,
    g15_a_static_member_comes_back_without_a_rebalance,
    g11_a_pattern_takes_in_new_topics,
    o4_positions_are_committed_in_every_way,
    c1_positions_can_be_chosen,
    c1_a_position_is_found_while_news_come_in,
    o5_a_reset_says_how_many_records_were_skipped,
    admin_deletes_records,
    admin_looks_after_topics,
]
