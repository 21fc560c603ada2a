"""SPEC G20, G21: our consumer speaks the consumer protocol (KIP-848), in groups with Java's and librdkafka's.

Apache Kafka is the judge of our client; our broker is asked the same.

The tests end with the checkers of histories: nothing lost, nothing read by two members, no commit ahead. Three have no
history, because all that they ask for is refused, or goes through the client of asyncio, which has no recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla import (
    Admin,
    AsyncConsumer,
    CommitFailedError,
    Consumer,
    InvalidRegularExpressionError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    SubscriptionPattern,
    TopicPartition,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from tests.client import journeys
from tests.interop.nodes import Node, node_of
from tests.interop.team import Team
from tests.recording.current import EXCUSED, judged

pytestmark = pytest.mark.interop

_PARTITIONS = 6


_CONFIG = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.migration.policy": "bidirectional",
}


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.slow)], scope="module")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose groups are quick, and may change their protocol in both directions."""
    if request.param == "apache":
        request.getfixturevalue("apache_jars")
    with node_of(request.param, tmp_path_factory.mktemp("consumer-protocol"), _CONFIG) as node:
        yield node


@pytest.fixture
def team(kafka: Node, fresh: Callable[[str], str]) -> Iterator[Team]:
    """A group that reads a topic of its own; nobody has joined."""
    topic = fresh("shared")
    with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
        admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])
    with Team(kafka.bootstrap, topic, fresh("group"), _PARTITIONS) as team:
        yield team


def group_kind(team: Team) -> str:
    """How the coordinator keeps the group."""
    with Admin({"bootstrap.servers": team.bootstrap}) as admin:
        [kind] = [each.type for each in admin.list_groups() if each.group_id == team.group]
    return kind.lower()


_OF_BOTH_PROTOCOLS = [
    journeys.g9_who_does_not_poll_in_time_leaves_the_group_and_is_told_so,
    journeys.g11_a_pattern_takes_in_new_topics,
    journeys.g13_a_rebalance_callback_may_commit,
    journeys.o4_positions_are_committed_in_every_way,
]


@pytest.mark.parametrize("journey", _OF_BOTH_PROTOCOLS, ids=lambda journey: journey.__name__)
def test_g20_what_users_do_is_the_same_in_both_protocols(journey: Callable[[str, str], None], kafka: Node) -> None:
    with judged(kafka.bootstrap, ignore=EXCUSED.get(journey.__name__, ())):
        journey(kafka.bootstrap, "consumer")


def test_g20_members_come_and_go(team: Team) -> None:
    team.ours("a")
    team.settle()
    team.produce(20)
    team.ours("b")
    team.settle()
    team.ours("c")
    team.settle()
    team.produce(20)
    team.catch_up()
    team.leave("a")
    team.settle()
    team.produce(20)
    team.catch_up()
    team.judge()


def test_g20_what_a_killed_member_had_goes_to_the_others(team: Team) -> None:
    a = team.ours("a")
    team.settle()
    victim = team.victim()
    team.wait_for(lambda: len(a.owned()) < _PARTITIONS, "the victim has its share")
    team.produce(20)
    victim.kill()
    victim.wait()
    team.settle()
    team.catch_up()
    assert not [what for what, _ in a.told if what == "lost"]
    team.judge()


def test_g20_a_static_member_comes_back_to_what_it_had_and_nobody_else_notices(team: Team) -> None:
    team.ours("a", group_instance_id="one")
    b = team.ours("b", group_instance_id="two")
    team.settle()
    before, told = team.shares()["a"], len(b.told)
    team.leave("a")
    team.ours("a again", group_instance_id="one")
    team.settle()
    assert team.shares()["a again"] == before
    assert len(b.told) == told
    team.produce(20)
    team.catch_up()
    team.judge()


def test_g20_a_static_member_that_was_killed_is_waited_for(team: Team) -> None:
    """The coordinator keeps the instance id until the session is over: the error says so, and poll tries again."""
    victim = team.victim(instance="one")
    victim.kill()
    victim.wait()
    config = {"bootstrap.servers": team.bootstrap, "group.id": team.group, "group.protocol": "consumer"}
    with Consumer({**config, "group.instance.id": "one"}) as consumer:
        consumer.subscribe([team.topic])
        with pytest.raises(UnreleasedInstanceIdError, match=r"each poll\(\) tries again"):
            while not consumer.assignment():
                consumer.poll(1.0)
    again = team.victim(instance="one")
    again.kill()
    again.wait()


def test_g20_the_broker_matches_the_pattern_and_finds_a_new_topic(team: Team) -> None:
    a = team.ours("a", wanted=SubscriptionPattern(f"{team.topic}.*"))
    team.settle()
    b = team.ours("b", wanted=SubscriptionPattern(f"{team.topic}.*"))
    team.settle()
    other = f"{team.topic}-too"
    with Admin({"bootstrap.servers": team.bootstrap}) as admin:
        admin.create_topics([NewTopic(other, 2, 1)])
    new = {TopicPartition(other, 0), TopicPartition(other, 1)}
    team.wait_for(lambda: new <= a.owned() | b.owned(), "the new topic is read, too")
    team.settle()
    team.produce(20)
    team.catch_up()
    team.judge()


def test_g20_partitions_that_are_added_are_read(team: Team) -> None:
    team.ours("a")
    team.ours("b")
    team.settle()
    with Admin({"bootstrap.servers": team.bootstrap}) as admin:
        admin.create_partitions({team.topic: _PARTITIONS + 2})
    team.partitions += 2
    team.settle()
    team.produce(20)
    team.catch_up()
    team.judge()


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_g20_members_live_through_a_restart_of_the_coordinator(is_killed: bool, team: Team, kafka: Node) -> None:
    players = [team.ours("a"), team.ours("b")]
    team.settle()
    team.produce(20)
    team.catch_up()
    (kafka.kill if is_killed else kafka.stop)()
    kafka.start()
    team.produce(20)
    team.catch_up()
    team.settle()
    assert not [tps for player in players for what, tps in player.told if what == "lost"]
    team.judge()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_g20_one_group_of_java_librdkafka_and_ours(protocol: str, team: Team) -> None:
    """Also of both protocols: the first of ours always speaks the consumer protocol."""
    team.ours("ours")
    team.settle()
    team.librdkafka("librdkafka", protocol=protocol, **_classic_range(protocol))
    team.settle()
    team.produce(20)
    team.java("java", protocol=protocol)
    team.settle()
    team.produce(20)
    team.catch_up()
    team.leave("librdkafka")
    team.settle()
    team.leave("ours")
    team.settle()
    team.produce(20)
    team.catch_up()
    team.judge()


def _classic_range(protocol: str) -> dict[str, object]:
    return {"partition_assignment_strategy": "range"} if protocol == "classic" else {}


@pytest.mark.parametrize(("before", "after"), [("classic", "consumer"), ("consumer", "classic")])
def test_g21_a_group_changes_its_protocol_member_by_member(before: str, after: str, team: Team) -> None:
    for name in "abc":
        team.ours(name, protocol=before)
    team.settle()
    assert group_kind(team) == before
    team.produce(10)
    team.catch_up()
    for name in "abc":
        team.leave(name)
        team.settle()
        team.produce(10)
        team.ours(f"{name} anew", protocol=after)
        team.settle()
        team.produce(10)
        team.catch_up()
    assert group_kind(team) == after
    team.judge()


async def test_g20_g11_offsets_in_a_transaction_are_those_of_the_member_as_it_is(
    kafka: Node, fresh: Callable[[str], str]
) -> None:
    topic, group = fresh("source"), fresh("transformers")
    servers = {"bootstrap.servers": kafka.bootstrap}
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1), NewTopic(f"{topic}-out", 1, 1)])
    config = {**servers, "group.id": group, "group.protocol": "consumer", "enable.auto.commit": False}
    config |= {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    tp = TopicPartition(topic, 0)
    with Producer({**servers, "transactional.id": fresh("transformer")}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(10):
            producer.send(topic, b"%d" % number)
        producer.commit_transaction()
        consumer = AsyncConsumer(config)
        consumer.subscribe([topic])
        records = await _first_of(consumer)
        old = consumer.group_metadata()
        assert old.generation_id > 0
        producer.begin_transaction()
        producer.send(f"{topic}-out", b"made")
        producer.send_offsets_to_transaction({tp: OffsetAndMetadata(records[-1].offset + 1)}, old)
        producer.commit_transaction()
        assert (await consumer.committed([tp]))[tp].offset == records[-1].offset + 1
        await consumer.unsubscribe()
        consumer.subscribe([topic])
        with pytest.raises(TimeoutError):
            await _first_of(consumer, wait_s=3.0)
        await consumer.close()
        producer.begin_transaction()
        producer.send(f"{topic}-out", b"made twice")
        with pytest.raises(CommitFailedError, match="UNKNOWN_MEMBER_ID"):
            producer.send_offsets_to_transaction({tp: OffsetAndMetadata(3)}, old)
        producer.abort_transaction()


async def _first_of(consumer: AsyncConsumer, wait_s: float = 30.0) -> list:  # type: ignore[type-arg]
    import asyncio

    async with asyncio.timeout(wait_s):
        while not (records := await consumer.poll(0.5)):
            pass
    return records


def test_g20_what_the_coordinator_refuses_is_said_with_what_to_do(kafka: Node, fresh: Callable[[str], str]) -> None:
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": fresh("refused"), "group.protocol": "consumer"}
    with Consumer({**config, "group.remote.assignor": "best"}) as consumer:
        consumer.subscribe([fresh("none")])
        with pytest.raises(UnsupportedAssignorError, match=r"group\.remote\.assignor"):
            consumer.poll(20)
    with Consumer(config) as consumer:
        consumer.subscribe(SubscriptionPattern("(a"))
        with pytest.raises(InvalidRegularExpressionError, match="RE2"):
            consumer.poll(20)
