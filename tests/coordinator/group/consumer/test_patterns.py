"""Regular expressions that members subscribe to, when something goes wrong, now or in an earlier version."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assign.server import AssignorError, GroupSpec, Partitions, UniformAssignor
from ottla.base.limits import MAX_INLINE_ASSIGNMENT
from ottla.base.patterns import Pattern
from ottla.coordinator.group.consumer.group import Resolved
from ottla.coordinator.group.consumer.records import regex_record
from ottla.coordinator.group.consumer.regexes import Resolution
from ottla.wire.consumer_group_records import ConsumerGroupRegularExpressionKey, decode_key
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.coordinator.cost import steps
from tests.coordinator.group.consumer.rig import (
    GROUP,
    START_MS,
    FakeMember,
    Metadata,
    Rig,
    by_pattern,
    join_request,
    settle,
)


def _with_stale_pattern() -> tuple[Rig, FakeMember]:
    """A log in which a pattern is left that nobody uses. An earlier version wrote such ones."""
    rig = Rig(Metadata(words=4, other=2))
    member = rig.joined("m1")
    settle(member)
    rig.log.append(regex_record(GROUP, "o.*", Resolved(frozenset({"other"}), 2, START_MS)))
    rig.crash()
    return rig, member


def test_a_pattern_that_nobody_uses_is_forgotten_with_the_next_heartbeat() -> None:
    rig, member = _with_stale_pattern()
    epoch = rig.group.epoch
    assert not member.beat().error_code
    assert (rig.group.regexes, rig.group.is_subscribed_to("other"), rig.group.epoch) == ({}, False, epoch + 1)
    settle(member)
    written = len(rig.log)
    assert not member.beat().error_code
    assert len(rig.log) == written


def test_a_pattern_that_nobody_uses_hides_no_other() -> None:
    rig, _ = _with_stale_pattern()
    by_pattern(rig, "m2", "w.*")
    assert set(rig.group.regexes) == {"w.*"}
    written = len(rig.log)
    for _ in range(10):  # nor is the other resolved again and again
        rig.advance(11_000)
        rig.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m2", rig.group.members["m2"].member_epoch))
    keys = [decode_key(record.key) for record in rig.log[written:]]
    assert ConsumerGroupRegularExpressionKey(GROUP, "w.*") not in keys


def test_a_pattern_that_nobody_uses_may_be_used_again() -> None:
    rig, _ = _with_stale_pattern()
    rig.metadata.make("ochre", 1)
    by_pattern(rig, "m2", "o.*")
    assert rig.group.regexes["o.*"].topics == {"other", "ochre"}


class _OutOfOrder(UniformAssignor):
    """One of Kafka's own, which fails once."""

    def __init__(self) -> None:
        self.fails = True

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        fails, self.fails = self.fails, False
        if fails:
            raise AssignorError("not this time")
        return super().assign(group)


def test_a_pattern_is_resolved_after_a_heartbeat_that_was_refused() -> None:
    """The first heartbeat wants it resolved, and is refused behind that. Nothing of it may be left."""
    rig = Rig(Metadata(words=4, other=2), assignors={"uniform": _OutOfOrder()})
    asked = join_request("m1", "words", subscribed_topic_regex="o.*")
    assert rig.heartbeat(asked).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not rig.heartbeat(asked).error_code
    rig.advance(0)
    assert set(rig.group.regexes) == {"o.*"}


def test_a_new_target_is_computed_after_a_heartbeat_whose_records_were_not_appended() -> None:
    rig = Rig(Metadata(words=MAX_INLINE_ASSIGNMENT), assignors={"uniform": UniformAssignor()})
    asked = join_request("m1", "words", subscribed_topic_regex="o.*")
    rig.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.heartbeat(asked).error_code == ErrorCode.NOT_COORDINATOR
    assert rig.jobs == []
    assert not rig.heartbeat(asked).error_code
    assert len(rig.jobs) == 1
    rig.advance(0)
    assert set(rig.group.regexes) == {"o.*"}


def _resolved(rig: Rig) -> tuple[list[int], dict[str, Resolved]]:
    """The group's patterns resolved: how many were compiled in each turn, and the result."""
    compiled: list[int] = []
    resolution: list[Resolution] = []
    going = True

    def turn() -> None:
        nonlocal going
        if not resolution:
            resolution.append(Resolution(rig.group, rig.metadata, START_MS, lambda name: name != "w3"))
        going = not resolution[0].go_on()

    while going:
        _, objects = steps(turn, Pattern)
        compiled.append(len(objects))
    return compiled, dict(resolution[0].results())


def test_one_turn_compiles_one_pattern_of_a_group() -> None:
    """One after the other, as each may take milliseconds: 24 members stopped the loop for more than a second."""
    rig = Rig(Metadata(w1=1, w2=1, w3=1))
    for place in range(24):
        rig.heartbeat(
            join_request(f"m{place}", subscribed_topic_names=None, subscribed_topic_regex=f"w[1-3]|a{{{place}}}")
        )
    compiled, results = _resolved(rig)
    assert (max(compiled), sum(compiled), len(results)) == (1, 24, 24)
    assert {result.topics for result in results.values()} == {frozenset({"w1", "w2"})}


def test_a_turn_matches_few_names_with_a_large_pattern() -> None:
    """A match may take as many steps as the pattern has for each character of the name."""
    rig = Rig(Metadata(**{f"w{place:0100d}": 1 for place in range(300)}))
    rig.heartbeat(join_request("m1", subscribed_topic_names=None, subscribed_topic_regex="(?:.?){500}w.*"))
    compiled, _ = _resolved(rig)
    assert len(compiled) >= 300 * 100 * 4_500 // 1_500_000
    rig = Rig(Metadata(**{f"w{place:0100d}": 1 for place in range(300)}))
    rig.heartbeat(join_request("m1", subscribed_topic_names=None, subscribed_topic_regex="w.*"))
    assert len(_resolved(rig)[0]) == 1
