"""How groups are coordinated, G1 to G21: each row as a person would tell it, with its numbers and names.

The broker's half is asked of the coordinator itself, in a runtime in memory whose time the test moves. Our client's
half is asked of its core in the same way, or of live consumers on a live broker.
"""

from __future__ import annotations

import random

import pytest

from ottla import (
    AsyncAdmin,
    FencedInstanceIdError,
    MaxPollIntervalExceededError,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    TopicPartition,
)
from ottla.client.config.producer import producer_config
from ottla.client.core.intents import CoordinatorKind
from ottla.client.net.cluster import Cluster
from ottla.client.net.coordinators import Coordinators
from ottla.coordinator.group.classic.state import GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.hashing import coordinator_partition
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.offsets_records import decode_group_metadata_value
from tests.client.core.consumer.heard import Heard
from tests.client.core.consumer.rig import Rig as ClientRig
from tests.client.scripted_broker import ScriptedBroker
from tests.coordinator.group.consumer.rig import Rig as ConsumerGroupRig
from tests.coordinator.group.consumer.rig import settle
from tests.coordinator.group.rig import REBALANCE_MS, SESSION_MS, Rig, protocols
from tests.seeds.live import live_group

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER = {"group.id": "g", "enable.auto.commit": False}


def a_member(**config: object) -> tuple[ClientRig, Heard]:
    """Our client as a stable member of generation 1 that has t0 of two partitions."""
    rig, heard = ClientRig({**MEMBER, **{key.replace("_", "."): value for key, value in config.items()}}), Heard()
    heard.subscribe(rig, "t")
    rig.become_stable(T0)
    heard.said.clear()
    return rig, heard


# --- who coordinates ---


def test_g1_a_groups_coordinator_leads_the_partition_of_its_hash() -> None:
    """Java's hash of the group's name, without its sign, modulo `offsets.topic.num.partitions`."""
    hashes = {"g": 103, "readers": 1_080_410_128, "billing": -109_829_509}
    for group, java_hash in hashes.items():
        assert coordinator_partition(group, 50) == abs(java_hash) % 50


async def test_g1_the_client_asks_once_and_again_after_not_coordinator() -> None:
    """The answer is kept. An answer NOT_COORDINATOR, or a lost connection, makes the client ask again."""
    async with ScriptedBroker() as broker:
        cluster = Cluster(producer_config(broker.config()), random.Random(0))
        coordinators, group = Coordinators(cluster), (CoordinatorKind.GROUP, "g")
        for _ in range(3):
            assert await coordinators.find(*group) >= 0
        (asked,) = broker.asked(ApiKey.FIND_COORDINATOR)
        assert (asked.key_type, asked.coordinator_keys) == (0, ("g",))
        with pytest.raises(Exception, match="NOT_COORDINATOR"):
            coordinators.check(*group, ErrorCode.NOT_COORDINATOR)
        await coordinators.find(*group)
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 2
        await cluster.close()


async def test_g2_the_offsets_topic_is_made_by_the_first_group() -> None:
    """50 partitions unless told otherwise, compacted."""
    async with live_group(config={"offsets.topic.num.partitions": "50"}, t=1) as group:
        assert "__consumer_offsets" not in group.broker.node.image.topics
        group.join("C0", ("t",))
        await group.comes_to({"C0": "tp0"})
        image = group.broker.node.image
        assert len(image.topics["__consumer_offsets"].partitions) == 50
        assert image.topic_configs("__consumer_offsets")["cleanup.policy"] == "compact"


# --- joining ---


def test_g3_a_new_member_is_given_an_id_and_comes_again_with_it() -> None:
    """MEMBER_ID_REQUIRED, with an id made of the client's id and something unique."""
    rig = Rig()
    first = rig.answer(rig.join())
    assert (first.error_code, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-1")
    second = rig.join(first.member_id)
    rig.advance(0)
    assert rig.joined(second).generation_id == 1


def test_g3_every_refusal_has_its_own_error() -> None:
    """A session timeout below 6 s or above 30 min, strangers, other protocols, a full group."""
    rig, full = Rig(), Rig(GroupConfig(group_initial_rebalance_delay_ms=0, group_max_size=1))
    (member,) = rig.stable(1)
    full.stable(1)
    refused = {
        "too short": rig.join(session_ms=5_999),
        "too long": rig.join(session_ms=30 * 60_000 + 1),
        "stranger": rig.join("stranger"),
        "other type": rig.join(protocol_type="connect"),
    }
    assert {why: ErrorCode(rig.answer(token).error_code).name for why, token in refused.items()} == {
        "too short": "INVALID_SESSION_TIMEOUT",
        "too long": "INVALID_SESSION_TIMEOUT",
        "stranger": "UNKNOWN_MEMBER_ID",
        "other type": "INCONSISTENT_GROUP_PROTOCOL",
    }
    assert full.answer(full.join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.answer(rig.sync(member, 9)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert rig.state() is GroupState.STABLE


def test_g4_the_first_to_join_leads_and_alone_hears_of_the_others() -> None:
    """When it leaves, the first of those that are left leads."""
    rig = Rig()
    tokens = [rig.join_twice() for _ in range(3)]
    rig.advance(0)
    answers = [rig.joined(token) for token in tokens]
    leader, second, third = (answer.member_id for answer in answers)
    assert {answer.leader for answer in answers} == {leader}
    assert [[each.member_id for each in answer.members] for answer in answers] == [[leader, second, third], [], []]
    rig.complete(answers)
    rig.leave(leader)
    again = [rig.join(third), rig.join(second)]
    assert {rig.joined(token).leader for token in again} == {second}


def test_g5_who_does_not_come_back_within_the_rebalance_timeout_is_dropped() -> None:
    """The rebalance timeout is the members' `max.poll.interval.ms`."""
    rig = Rig()
    leader, follower = rig.stable(2)
    waiting = rig.join(leader)
    for _ in range(REBALANCE_MS // 5_000):
        assert rig.answer(waiting) is None
        assert rig.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS  # it lives, and does not come
        rig.advance(5_000)
    assert [member.member_id for member in rig.joined(waiting).members] == [leader]
    assert rig.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_g5_an_empty_group_waits_a_moment_for_more_members() -> None:
    """`group.initial.rebalance.delay.ms`, so that members that start together share one generation."""
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=3_000))
    tokens = [rig.join(two_steps=False), rig.join(two_steps=False)]
    rig.advance(2_999)
    assert rig.answer(tokens[0]) is None
    rig.advance(3_001)  # each member that comes prolongs it
    assert {rig.joined(token).generation_id for token in tokens} == {1}


def test_g6_most_votes_among_the_strategies_that_all_have() -> None:
    """sticky is not everybody's, so its voter's second choice counts: range has two votes of three."""
    rig = Rig()
    offers = [("sticky", "range", "roundrobin"), ("roundrobin", "range"), ("range", "roundrobin")]
    tokens = [rig.join_twice(offered=protocols(*names)) for names in offers]
    rig.advance(0)
    assert {rig.joined(token).protocol_name for token in tokens} == {"range"}
    refused = rig.answer(rig.join(offered=protocols("mine")))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# --- in the group ---


def test_g7_the_generation_is_in_the_log_before_anybody_hears_of_it() -> None:
    """Followers wait for the leader's assignment, and it for the log; if the log fails, nobody gets an assignment."""
    rig = Rig()
    tokens = [rig.join_twice(), rig.join_twice()]
    rig.advance(0)
    leader, follower = (rig.joined(token).member_id for token in tokens)
    waiting = rig.sync(follower, 1)
    assert rig.answer(waiting) is None
    rig.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
    failed = rig.sync(leader, 1, {leader: b"one", follower: b"two"})
    assert rig.answer(failed).error_code != ErrorCode.NONE
    assert rig.answer(waiting).error_code != ErrorCode.NONE
    rig = Rig()
    leader, follower = rig.stable(2)
    value = rig.records[-1].value
    assert value is not None
    written = decode_group_metadata_value(value)
    assert (written.generation, written.protocol, written.leader) == (1, "range", leader)
    assert [(each.member_id, each.assignment) for each in written.members] == [
        (leader, leader.encode()),
        (follower, follower.encode()),
    ]


def test_g8_heartbeats_go_on_while_the_users_code_runs() -> None:
    """Every `heartbeat.interval.ms` (3 s), without a poll; REBALANCE_IN_PROGRESS makes the next poll rejoin."""
    rig, _ = a_member(max_poll_interval_ms=300_000)
    for _ in range(5):
        rig.wait(3.1)
        rig.answer(ApiKey.HEARTBEAT, HeartbeatResponse())
    rig.wait(3.1)
    rig.refuse(ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, HeartbeatResponse)
    assert not rig.asked(ApiKey.JOIN_GROUP)
    rig.poll()
    rig.run_callback()
    assert rig.asked(ApiKey.JOIN_GROUP)


def test_g8_a_silent_member_is_expelled_after_its_session_timeout() -> None:
    """Not before; and the others rebalance."""
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.advance(SESSION_MS - 1)
    assert rig.heartbeat(leader, 1) is ErrorCode.NONE
    rig.advance(1)
    assert rig.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_g9_who_does_not_poll_in_time_leaves_and_is_told_how_long_it_took() -> None:
    """The error says how long it took and what `max.poll.interval.ms` allows."""
    async with live_group(t=1) as group:
        slow = group.join("C0", ("t",), **{"max.poll.interval.ms": 300})
        await group.comes_to({"C0": "tp0"})
        del group.members["C0"]  # nobody polls it any more
        group.join("C1", ("t",))
        await group.comes_to({"C1": "tp0"})
        with pytest.raises(
            MaxPollIntervalExceededError, match=r"max\.poll\.interval\.ms allows 300: .* has left"
        ) as told:
            await slow.poll(0)
        assert told.value.took_ms >= told.value.allowed_ms == 300
        await slow.close()


def test_g10_leaving_rebalances_at_once_and_several_may_leave_together() -> None:
    """The others learn of it with their next heartbeat, not after a timeout."""
    rig = Rig()
    leader, second, third = rig.stable(3)
    left = rig.leave(second, third)
    assert [each.error_code for each in left.members] == [0, 0]
    assert rig.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.joined(rig.join(leader)).generation_id == 2


async def test_g10_close_and_unsubscribe_leave() -> None:
    """So that others need not wait for the end of the session (45 s)."""
    async with live_group(t=2) as group:
        for name in ("C0", "C1"):
            group.join(name, ("t",))
        await group.comes_to({"C0": "tp0", "C1": "tp1"})
        await group.members["C1"].unsubscribe()
        del group.members["C1"]
        await group.comes_to({"C0": "tp0 tp1"})
        await group.leave("C0")
        async with AsyncAdmin(group.servers) as admin:
            assert (await admin.describe_groups(["g"]))["g"].state == "Empty"


async def test_g11_every_change_divides_the_partitions_again() -> None:
    """A member joins, changes its subscription, leaves; a topic comes, grows, and goes."""
    quick = {"metadata.max.age.ms": 100}
    async with (
        live_group(config={"auto.create.topics.enable": "false"}, t=2) as group,
        AsyncAdmin(group.servers) as admin,
    ):
        group.join("C0", ("t", "u"), **quick)
        await group.comes_to({"C0": "tp0 tp1"})
        group.join("C1", ("t",), **quick)
        await group.comes_to({"C0": "tp0", "C1": "tp1"})
        await admin.create_topics([NewTopic("u", 1)])
        await group.comes_to({"C0": "tp0 up0", "C1": "tp1"})
        await admin.create_partitions({"t": 3})
        await group.comes_to({"C0": "tp0 tp1 up0", "C1": "tp2"})
        await admin.delete_topics(["u"])
        await group.comes_to({"C0": "tp0 tp1", "C1": "tp2"})
        await admin.create_topics([NewTopic("v", 1)])
        group.members["C1"].subscribe(["v"])
        await group.comes_to({"C0": "tp0 tp1 tp2", "C1": "vp0"})
        await group.leave("C1")
        await group.comes_to({"C0": "tp0 tp1 tp2"})


def test_g12_an_old_generation_is_refused_and_writes_nothing() -> None:
    """Heartbeat, commit and sync of generation 1, when the group is in generation 2."""
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.leave(follower)
    rig.complete([rig.joined(rig.join(leader))])
    before = len(rig.records)
    assert rig.heartbeat(leader, 1) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(5, member_id=leader, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert rig.answer(rig.sync(leader, 1)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert (len(rig.records), rig.fetch().committed_offset) == (before, -1)


def test_g13_before_a_rejoin_positions_are_committed_and_the_user_gives_up() -> None:
    """In this order: the commit, `on_partitions_revoked`, JoinGroup."""
    rig, heard = a_member(enable_auto_commit=True)
    rig.state(T0).seek(7)
    rig.do(rig.core.positions_chosen)
    rig.wait(3.1)
    rig.refuse(ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, HeartbeatResponse)
    rig.poll()
    (topic,) = rig.message(ApiKey.OFFSET_COMMIT).topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 7)]
    assert (heard.said, rig.asked(ApiKey.JOIN_GROUP)) == ([], [])
    rig.wait(16)  # it is waited for, but not for ever
    rig.poll()
    rig.run_callback()
    assert heard.said == [("revoked", [T0])]
    assert rig.asked(ApiKey.JOIN_GROUP)


def test_g13_what_is_lost_is_never_committed() -> None:
    """Who was expelled is told `on_partitions_lost`: another member may have the partition already."""
    rig, heard = a_member(enable_auto_commit=True)
    rig.wait(3.1)
    rig.refuse(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, HeartbeatResponse)
    rig.poll()
    rig.run_callback()
    assert heard.said == [("lost", [T0])]
    assert not rig.asked(ApiKey.OFFSET_COMMIT)


async def test_g14_eager_members_give_up_everything_and_cooperative_ones_what_moves() -> None:
    """A second member comes to a group that has four partitions."""
    for strategy, given_up in (("range", 4), ("cooperative-sticky", 2)):
        async with live_group(t=4) as group:
            group.join("C0", ("t",), strategy)
            await group.comes_to({"C0": "tp0 tp1 tp2 tp3"})
            group.join("C1", ("t",), strategy)
            await group.until(lambda: [len(each.assignment()) for each in group.members.values()] == [2, 2])
            assert len(group.revoked["C0"]) == given_up


async def test_g14_a_group_becomes_cooperative_by_two_rolling_restarts() -> None:
    """First everybody has both strategies, then the new one alone; the group works all the time."""
    async with live_group(t=2) as group:
        for name in ("C0", "C1"):
            group.join(name, ("t",), "range")
        await group.comes_to({"C0": "tp0", "C1": "tp1"})
        for strategy in ("cooperative-sticky,range", "cooperative-sticky"):
            for name in ("C0", "C1"):
                await group.leave(name)
                group.join(name, ("t",), strategy)
                await group.until(lambda: [len(each.assignment()) for each in group.members.values()] == [1, 1])
        async with AsyncAdmin(group.servers) as admin:
            assert (await admin.describe_groups(["g"]))["g"].protocol == "cooperative-sticky"


async def test_g15_a_static_member_comes_back_without_a_rebalance_and_a_second_one_fences_it() -> None:
    """`group.instance.id`: closing does not leave; the id and the assignment are there for who comes back."""
    static = {"group.instance.id": "one"}
    async with live_group(t=2) as group:
        group.join("C0", ("t",), **static)
        group.join("C1", ("t",))
        await group.until(lambda: sorted(group.has.values()) == ["tp0", "tp1"])
        had, generation = group.has["C0"], group.members["C1"].group_metadata().generation_id
        await group.leave("C0")
        first = group.join("C0", ("t",), **static)
        await group.until(lambda: group.has["C0"] == had)
        assert group.members["C1"].group_metadata().generation_id == generation
        del group.members["C0"]
        group.join("C2", ("t",), **static)
        await group.until(lambda: group.has["C2"] == had)
        with pytest.raises(FencedInstanceIdError):
            while True:
                await first.poll(0.1)
        await first.close()


async def test_g16_more_consumers_than_partitions_leave_the_rest_idle() -> None:
    """And another group gets everything once more."""
    async with live_group(t=2) as group:
        for name in ("C0", "C1", "C2"):
            group.join(name, ("t",))
        await group.comes_to({"C0": "tp0", "C1": "tp1", "C2": ""})
        group.join("D0", ("t",), **{"group.id": "another"})
        await group.comes_to({"C0": "tp0", "C1": "tp1", "C2": "", "D0": "tp0 tp1"})


def test_g17_members_go_on_after_a_crash_of_the_coordinator() -> None:
    """The generation, the members and the offsets are in the log; nobody has to join again."""
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.commit(42, member_id=leader, generation=1)
    rig.crash()
    assert rig.state() is GroupState.STABLE
    assert [rig.heartbeat(member, 1) for member in (leader, follower)] == [ErrorCode.NONE, ErrorCode.NONE]
    assert rig.synced(rig.sync(follower, 1)) == follower.encode()
    assert rig.fetch().committed_offset == 42


async def test_g18_groups_are_listed_described_reset_and_deleted() -> None:
    """By state and type; members are removed, offsets listed, altered and deleted."""
    tp = TopicPartition("t", 0)
    async with live_group(t=1) as group, AsyncAdmin(group.servers) as admin:
        await group.write("t", *[b"%d" % number for number in range(10)])
        group.join("C0", ("t",), **{"auto.offset.reset": "earliest"})
        await group.until(lambda: len(group.read.get("C0", [])) == 10)
        await group.members["C0"].commit()
        (listed,) = await admin.list_groups(states=["Stable"], types=["classic"])
        assert (listed.group_id, await admin.list_groups(states=["Empty"])) == ("g", [])
        described = (await admin.describe_groups(["g"]))["g"]
        assert (described.state, [each.client_id for each in described.members]) == ("Stable", ["C0"])
        assert (await admin.list_group_offsets("g"))[tp].offset == 10
        with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
            await admin.delete_groups(["g"])
        await group.members.pop("C0").close(leave_group=False)
        assert await admin.remove_members("g") == [described.members[0].member_id]
        start = (await admin.list_offsets({tp: OffsetSpec.EARLIEST}))[tp].offset
        await admin.alter_group_offsets("g", {tp: OffsetAndMetadata(start)})
        assert (await admin.list_group_offsets("g"))[tp].offset == 0
        await admin.delete_group_offsets("g", [tp])
        assert await admin.list_group_offsets("g") == {}
        await admin.delete_groups(["g"])
        assert await admin.list_groups() == []


# --- the consumer protocol ---


def test_g19_the_coordinator_divides_and_moves_one_partition_at_a_time() -> None:
    """KIP-848: heartbeats with epochs; a partition is given to a member when the one before has let it go."""
    rig = ConsumerGroupRig()
    first = rig.joined("m1")
    assert first.partitions == [0, 1, 2, 3]
    second = rig.joined("m2")
    assert second.partitions == []
    first.beat()  # it is told what to give up
    assert (len(first.partitions), second.partitions) == (2, [])
    settle(first, second)
    assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]
    assert first.epoch == second.epoch
    rig.crash()
    settle(first, second)
    assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]


async def test_g20_our_client_speaks_it_with_the_same_callbacks() -> None:
    """`group.protocol=consumer`."""
    new = {"group.protocol": "consumer"}
    async with live_group(t=4) as group:
        group.join("C0", ("t",), **new)
        await group.comes_to({"C0": "tp0 tp1 tp2 tp3"})
        group.join("C1", ("t",), **new)
        await group.until(lambda: [len(each.assignment()) for each in group.members.values()] == [2, 2])
        assert sorted(group.revoked["C0"]) == sorted(group.taken["C1"])
        async with AsyncAdmin(group.servers) as admin:
            assert (await admin.describe_groups(["g"]))["g"].type.lower() == "consumer"


async def test_g21_a_group_changes_its_protocol_while_it_has_members() -> None:
    """Both ways, by `group.consumer.migration.policy=bidirectional`."""
    kinds = []
    config = {"group.consumer.migration.policy": "bidirectional"}
    async with live_group(config=config, t=2) as group, AsyncAdmin(group.servers) as admin:
        for name, protocol in (("C0", "classic"), ("C1", "consumer")):
            group.join(name, ("t",), **{"group.protocol": protocol})
            await group.until(lambda: sorted(" ".join(group.has.values()).split()) == ["tp0", "tp1"])
            await group.until(lambda: all(group.has.values()))
            kinds.append((await admin.describe_groups(["g"]))["g"].type.lower())
        await group.leave("C1")
        await group.comes_to({"C0": "tp0 tp1"})
        kinds.append((await admin.describe_groups(["g"]))["g"].type.lower())
    assert kinds == ["classic", "consumer", "classic"]
