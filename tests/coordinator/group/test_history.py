"""G23: what the history of groups says of joins, departures, rebalances and moves, in groups of both kinds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.limits import MAX_EVENT_ITEMS, MAX_EVENT_TEXT
from ottla.base.types import TopicPartition
from ottla.coordinator.facts import Began, GroupFacts, Joined, Settled, Who
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.history import VERSION
from ottla.wire.consumer_protocol import encode_assignment
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_assignment import TopicPartition as Part
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.coordinator.group import rig as classic
from tests.coordinator.group.consumer.rig import CONFIG, FakeMember, Metadata, settle
from tests.coordinator.group.consumer.rig import Rig as ConsumerRig
from tests.coordinator.group.rig import REBALANCE_MS, SESSION_MS, Rig
from tests.coordinator.group.told import Told


def _given(*numbers: int, topic: str = "words") -> bytes:
    return encode_assignment(ConsumerProtocolAssignment((Part(topic, numbers),)))


def _stable(rig: Rig, **parts: bytes) -> None:
    """Bring the group to rest: its members have `parts`, in the order in which they are given."""
    members = list(rig.group().members)
    tokens = [rig.join(member_id) for member_id in members]
    rig.advance(0)
    answers = [rig.joined(token) for token in tokens]
    given_parts = dict(zip(members, parts.values(), strict=True))
    leader = next(answer for answer in answers if answer.leader == answer.member_id)
    for answer in answers:
        rig.sync(answer.member_id, answer.generation_id, given_parts if answer is leader else None)


def test_g23_a_classic_group_from_its_first_join_to_the_last_departure() -> None:
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=300))
    token = rig.join_twice()
    rig.advance(300)
    answer = rig.joined(token)
    rig.advance(40)
    rig.sync(answer.member_id, 1, {answer.member_id: _given(0, 1)})
    assert rig.told.names == ["member-joined", "rebalance-started", "rebalance-completed"]
    completed = rig.told.last("rebalance-completed")
    assert completed == {
        "version": VERSION,
        "event": "rebalance-completed",
        "group": classic.GROUP,
        "kind": "classic",
        "time_ms": classic.START_MS + 340,
        "generation": 1,
        "reason": f"{answer.member_id} joined; client's reason: not provided",
        "protocol": "range",
        "members": 1,
        "duration_ms": 340,
        "first_join_to_stable_ms": 340,
        "waited": [{"member_id": answer.member_id, "ms": 340}],
        "waited_count": 1,
        "moved": [
            {"topic": "words", "partition": 0, "from": None, "to": answer.member_id},
            {"topic": "words", "partition": 1, "from": None, "to": answer.member_id},
        ],
        "moved_count": 2,
    }
    rig.leave(MemberIdentity(answer.member_id, None, "the shop closes"))
    left = rig.told.last("member-left")
    assert (left["member_id"], left["why"], left["reason"]) == (answer.member_id, "left", "the shop closes")
    assert rig.told.names[-1] == "group-emptied"


def test_g23_what_moves_is_what_has_another_reader() -> None:
    rig = Rig()
    (first,) = rig.stable(1)
    _stable(rig, first=_given(0, 1, 2))
    rig.join_twice()
    _stable(rig, first=_given(0, 1), second=_given(2))
    completed = rig.told.last("rebalance-completed")
    other = next(each for each in rig.group().members if each != first)
    assert completed["moved"] == [{"topic": "words", "partition": 2, "from": first, "to": other}]
    assert completed["moved_count"] == 1


def test_g23_a_silent_member_is_expelled_and_the_history_says_why() -> None:
    rig = Rig()
    first, second = rig.stable(2)
    rig.advance(SESSION_MS // 2)
    assert rig.heartbeat(first, rig.group().generation) is ErrorCode.NONE
    rig.advance(SESSION_MS // 2)
    expelled = rig.told.last("member-expelled")
    assert (expelled["member_id"], expelled["why"]) == (second, "session-timeout")
    assert expelled["client_id"] == "c"
    assert rig.told.names[-1] == "rebalance-started"


def test_g23_a_member_that_does_not_join_again_is_expelled_by_the_rebalance() -> None:
    rig = Rig()
    first, second = rig.stable(2, session_ms=REBALANCE_MS * 2)
    rig.join_twice(session_ms=REBALANCE_MS * 2)
    rig.join(first, session_ms=REBALANCE_MS * 2)
    rig.advance(REBALANCE_MS)
    expelled = rig.told.last("member-expelled")
    assert (expelled["member_id"], expelled["why"]) == (second, "rebalance-timeout")


def test_g23_a_static_member_that_is_replaced() -> None:
    rig = Rig()
    (first,) = rig.stable(1)  # a dynamic member, so that the group goes on
    old = rig.join(instance="i")
    rig.join(first)
    old_id = rig.joined(old).member_id
    rig.join(instance="i")
    new_id = rig.group().members.static_member_id("i")
    expelled, joined = rig.told.last("member-expelled"), rig.told.last("member-joined")
    assert (expelled["member_id"], expelled["why"]) == (old_id, "instance-replaced")
    assert (joined["member_id"], joined["replaces"], joined["instance_id"]) == (new_id, old_id, "i")


def test_g23_what_is_told_is_told_when_it_holds() -> None:
    rig = Rig()
    token = rig.join_twice()
    rig.advance(0)
    answer = rig.joined(token)
    rig.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
    rig.sync(answer.member_id, 1, {answer.member_id: _given(0)})
    assert "rebalance-completed" not in rig.told.names


def test_g23_a_consumer_group_moves_partitions_and_says_who_has_them() -> None:
    rig = ConsumerRig(Metadata(words=2))
    first = rig.joined("a")
    settle(first)
    rig.advance(70)
    second = rig.joined("b")
    rig.advance(30)
    settle(first, second)
    assert rig.told.names == [
        *("member-joined", "rebalance-started", "rebalance-completed"),
        *("member-joined", "rebalance-started", "rebalance-completed"),
    ]
    completed = rig.told.last("rebalance-completed")
    assert completed["moved"] == [{"topic": "words", "partition": 1, "from": "a", "to": "b"}]
    assert (completed["kind"], completed["duration_ms"], completed["members"]) == ("consumer", 30, 2)
    assert completed["reason"] == "b joined"
    second.leave()
    settle(first)
    assert rig.told.last("member-left")["member_id"] == "b"
    assert rig.told.last("rebalance-completed")["moved"] == [{"topic": "words", "partition": 1, "from": "b", "to": "a"}]
    rig.advance(rig.config.consumer_session_timeout_ms)
    assert rig.told.last("member-expelled")["why"] == "session-timeout"
    assert rig.told.names[-1] == "group-emptied"


def test_g23_in_a_consumer_group_a_member_waits_for_who_has_not_given_up_yet() -> None:
    """A gives up one partition for B, and B another one for C, who also waits for A."""
    rig = ConsumerRig(Metadata(words=6))
    first = rig.joined("a")
    settle(first)
    completed = rig.told.last("rebalance-completed")
    assert (completed["first_join_to_stable_ms"], completed["waited"], completed["waited_count"]) == (0, [], 0)
    rig.advance(10)
    second = rig.joined("b")
    rig.advance(20)
    settle(first, second)
    completed = rig.told.last("rebalance-completed")
    assert completed["waited"] == [{"member_id": "b", "ms": 20, "for": ["a"], "for_count": 1}]
    assert (completed["duration_ms"], completed["first_join_to_stable_ms"], completed["waited_count"]) == (20, 20, 1)
    third = rig.joined("c")
    rig.advance(5)
    settle(first, third)
    rig.advance(7)
    settle(first, second, third)
    (waited,) = rig.told.last("rebalance-completed")["waited"]
    assert (waited["member_id"], waited["ms"], sorted(waited["for"]), waited["for_count"]) == ("c", 12, ["a", "b"], 2)


def test_g23_without_a_join_the_time_is_from_the_change_that_began_it() -> None:
    rig = ConsumerRig(Metadata(words=4))
    first, second = rig.joined("a"), rig.joined("b")
    settle(first, second)
    rig.advance(10)
    rig.metadata.make("words", 6)
    first.beat()
    rig.advance(25)
    settle(first, second)
    completed = rig.told.last("rebalance-completed")
    assert (completed["reason"], completed["duration_ms"]) == ("the topics have changed", 25)
    assert (completed["first_join_to_stable_ms"], completed["waited"]) == (25, [])
    second.leave()
    rig.advance(5)
    third = rig.joined("c")
    rig.advance(30)
    settle(first, third)
    completed = rig.told.last("rebalance-completed")
    assert (completed["reason"], completed["duration_ms"]) == ("b left", 35)
    assert completed["first_join_to_stable_ms"] == 30


def test_g23_who_waits_for_a_member_that_is_expelled_has_waited_for_it() -> None:
    rig = ConsumerRig(Metadata(words=2))
    settle(rig.joined("a"))
    second = rig.joined("b")
    for _ in range(20):
        second.beat()
        rig.advance(rig.config.consumer_session_timeout_ms // 8)
    settle(second)
    assert rig.told.last("member-expelled")["member_id"] == "a"
    (waited,) = rig.told.last("rebalance-completed")["waited"]
    assert (waited["member_id"], waited["for"]) == ("b", ["a"])
    assert waited["ms"] >= rig.config.consumer_session_timeout_ms * 7 // 8


def test_g23_a_consumer_group_names_the_assignor_that_has_divided() -> None:
    """The broker's first while no member asks for one, then the one that most of them ask for."""
    rig = ConsumerRig(Metadata(words=3))
    members = [rig.joined("a")]
    settle(*members)
    assert rig.told.last("rebalance-completed")["protocol"] == "uniform"
    for member_id, asks in (("b", "uniform"), ("c", "range"), ("d", "range")):
        members.append(rig.joined(member_id, server_assignor=asks))
        settle(*members)
    assert rig.told.last("rebalance-completed")["protocol"] == "range"


def test_g23_a_member_that_keeps_what_it_should_give_up_is_expelled() -> None:
    rig = ConsumerRig(Metadata(words=2))
    first = rig.joined("a")
    settle(first)
    rig.joined("b")
    stubborn = first.owned
    for _ in range(20):
        first.owned = stubborn
        first.beat()
        rig.advance(5_000)
    expelled = [each for each in rig.told.events if each["event"] == "member-expelled" and each["member_id"] == "a"]
    assert [each["why"] for each in expelled] == ["rebalance-timeout"]


def test_g23_a_restart_tells_nothing_again() -> None:
    rig = ConsumerRig(Metadata(words=2))
    settle(rig.joined("a"))
    before = len(rig.told.events)
    rig.crash()
    assert len(rig.told.events) == before


def test_g23_long_lists_and_texts_are_cut_and_counted() -> None:
    told, long = Told(), "x" * (MAX_EVENT_TEXT + 1)
    after = {"m": _given(*range(MAX_EVENT_ITEMS + 7))}
    who = Who(long, None, "c", "/h")
    facts = (Joined(who), Began("r", {}), Settled(1, "range", 1, after))
    told.hear([GroupFacts("g", "classic", 1, facts)], 0)
    assert len(told.last("member-joined")["member_id"]) == MAX_EVENT_TEXT
    completed = told.last("rebalance-completed")
    assert (len(completed["moved"]), completed["moved_count"]) == (MAX_EVENT_ITEMS, MAX_EVENT_ITEMS + 7)


def test_g23_assignments_that_nobody_can_read_move_nothing_that_is_known() -> None:
    told = Told()
    told.hear([GroupFacts("g", "classic", 1, (Began("r", {}), Settled(1, "x", 1, {"m": b"\x00"})))], 0)
    assert told.last("rebalance-completed")["moved"] is None


def _name(rig: ConsumerRig, topic_id: bytes) -> str:
    topic = rig.metadata.find_id(topic_id)
    assert topic is not None
    return topic.name


_STEPS = st.lists(st.tuples(st.sampled_from(("join", "leave", "expire")), st.integers(0, 4)), max_size=8)


@given(_STEPS)
def test_g23_who_follows_the_moves_knows_who_has_what(steps: list[tuple[str, int]]) -> None:
    """A reader of the history alone comes to the assignment that the members have."""
    rig = ConsumerRig(Metadata(words=3, lines=2), replace(CONFIG, consumer_max_size=5))
    members: dict[str, FakeMember] = {}
    for verb, number in steps:
        name = f"m{number}"
        if verb == "join" and name not in members:
            members[name] = rig.joined(name, "words", "lines")
        elif verb == "leave" and name in members:
            members.pop(name).leave()
        elif verb == "expire" and name in members:
            del members[name]
            for _ in range(10):
                rig.advance(rig.config.consumer_session_timeout_ms // 8)
                for member in members.values():
                    member.beat()
        settle(*members.values())
    owners: dict[TopicPartition, str] = {}
    for event in rig.told.events:
        for move in event.get("moved") or ():
            owners[TopicPartition(move["topic"], move["partition"])] = move["to"]
        if event["event"] == "group-emptied":
            owners.clear()
    have = {
        TopicPartition(_name(rig, topic_id), number): name
        for name, member in members.items()
        for topic_id, numbers in member.owned.items()
        for number in numbers
    }
    assert {tp: who for tp, who in owners.items() if who is not None} == have


def test_g23_why_an_administrator_removes_a_member_of_a_consumer_group_is_told() -> None:
    rig = ConsumerRig(Metadata(words=4))
    members = [rig.joined(name) for name in ("m1", "m2", "m3")]
    settle(*members)
    leaving = (MemberIdentity("m1", reason="removed by ops, ticket 7"), MemberIdentity("m2"))
    rig.run(rig.shard.leave_group(rig.token(), LeaveGroupRequest("readers", leaving), rig.now_ms))
    left = [event for event in rig.told.events if event["event"] == "member-left"]
    assert [(event["member_id"], event["reason"]) for event in left] == [("m1", "removed by ops, ticket 7"), ("m2", "")]
