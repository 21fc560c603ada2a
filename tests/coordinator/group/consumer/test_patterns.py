"""Regular expressions that members subscribe to, when something goes wrong, now or in an earlier version."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from ottla.assign.server import AssignorError, GroupSpec, Partitions, UniformAssignor
from ottla.base.limits import MAX_INLINE_ASSIGNMENT, MAX_NAMES_AT_ONCE
from ottla.base.patterns import Pattern
from ottla.coordinator.decision import Decision
from ottla.coordinator.group.consumer.group import Resolved
from ottla.coordinator.group.consumer.records import regex_record
from ottla.coordinator.group.consumer.regexes import Resolution
from ottla.coordinator.group.consumer.room import REGEX
from ottla.wire.consumer_group_records import ConsumerGroupRegularExpressionKey, decode_key
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.coordinator.cost import steps
from tests.coordinator.group.consumer.rig import (
    CONFIG,
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


_PATTERNS = 24
_EACH = MAX_NAMES_AT_ONCE // 4


def _with_many_patterns() -> Rig:
    """A group whose patterns match more names together than are taken at once, each a few; none is resolved yet."""
    rig = Rig(Metadata(**{f"w{place}": 1 for place in range(_EACH)}))
    for place in range(_PATTERNS):
        rig.heartbeat(
            join_request(f"m{place}", subscribed_topic_names=None, subscribed_topic_regex=f"w.*|a{{{place}}}")
        )
    return rig


def _decisions(rig: Rig) -> Iterator[Decision]:
    """What becomes of the resolution, a decision in each step, not carried out; who has it does that."""
    (key,) = (key for key in rig.timers if key[0] == REGEX)
    rest: Callable[[], Decision] | None = None
    while True:
        decision = rig.shard.timer(key, rig.now_ms) if rest is None else rest()
        yield decision._replace(rest=None)
        if rest is not None and decision.rest is None:
            return
        rest = decision.rest


def test_what_many_patterns_match_is_written_in_parts_and_the_epoch_rises_with_the_last() -> None:
    """1,000 patterns of 5,000 topics would have been one record batch of 100 MB, decided in one turn."""
    rig = _with_many_patterns()
    epoch, sizes = rig.group.epoch, list[int]()
    for decision in _decisions(rig):
        assert rig.group.epoch == epoch
        if decision.records:
            assert decision.unsynced is not None, "what the device has not taken is in the log all the same"
            rig.run(decision)
            sizes.append(len(decision.records))
    assert rig.group.epoch == epoch + 1
    most = MAX_NAMES_AT_ONCE // _EACH
    assert (len(sizes), max(sizes), sum(sizes)) == (_PATTERNS // most, most + 1, _PATTERNS + 1)
    assert [each.topics for each in rig.group.regexes.values()] == [frozenset(rig.metadata.names())] * _PATTERNS


def test_no_step_of_that_is_long() -> None:
    rig = _with_many_patterns()
    decisions, has_ended = _decisions(rig), False

    def turn() -> None:
        nonlocal has_ended
        decision = next(decisions, None)
        has_ended = decision is None
        if decision is not None:
            rig.run(decision)

    counts = []
    while not has_ended:
        counts.append(steps(turn)[0])
    assert max(counts) < 25 * MAX_NAMES_AT_ONCE
    assert sum(counts) > 2 * max(counts)


@pytest.mark.parametrize("survives", [1, 3])
def test_after_a_crash_between_two_parts_all_are_resolved_with_a_heartbeat_ten_seconds_later(survives: int) -> None:
    rig = _with_many_patterns()
    epoch, written = rig.group.epoch, 0
    for decision in _decisions(rig):
        rig.run(decision)
        written += bool(decision.records)
        if written == survives:
            break
    rig.crash()
    assert 0 < len(rig.group.regexes) < _PATTERNS
    rig.advance(11_000)
    rig.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m0", rig.group.members["m0"].member_epoch))
    rig.advance(0)
    assert len(rig.group.regexes) == _PATTERNS
    assert rig.group.epoch > epoch


def test_where_a_part_cannot_be_written_all_are_resolved_again() -> None:
    rig = _with_many_patterns()
    epoch = rig.group.epoch
    rig.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.advance(0)
    assert (rig.group.regexes, rig.group.epoch) == ({}, epoch)
    rig.advance(CONFIG.append_retry_ms)
    assert (len(rig.group.regexes), rig.group.epoch) == (_PATTERNS, epoch + 1)


def _resolved_with_many_patterns() -> Rig:
    """All patterns are resolved. A member subscribes by their names to topics that are not there yet."""
    rig = _with_many_patterns()
    rig.heartbeat(join_request("named", "wanted", "aa"))
    rig.advance(0)
    assert len(rig.group.regexes) == _PATTERNS
    return rig


def _beat(rig: Rig, member_id: str = "named") -> None:
    epoch = rig.group.members[member_id].member_epoch
    assert not rig.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, member_id, epoch)).error_code


def _write_parts_and_crash(rig: Rig, survives: int) -> None:
    for written, decision in enumerate(filter(lambda each: each.records, _decisions(rig)), 1):
        rig.run(decision)
        if written == survives:
            break
    rig.crash()


@pytest.mark.parametrize("survives", [1, 3])
def test_after_a_crash_between_two_parts_those_that_were_resolved_before_are_so_again(survives: int) -> None:
    rig = _resolved_with_many_patterns()
    rig.metadata.make("wanted", 1)
    rig.advance(11_000)
    _beat(rig)
    _write_parts_and_crash(rig, survives)
    rig.advance(11_000)
    _beat(rig)
    rig.advance(0)
    assert {each.topics for each in rig.group.regexes.values()} == {frozenset(rig.metadata.names())}


@pytest.mark.parametrize("survives", [1, 3, 5])
def test_after_a_crash_between_two_parts_the_epoch_rises_for_what_the_first_of_them_has(survives: int) -> None:
    """One pattern of the first part matches a topic now that the group reads already. All others are as they were."""
    rig = _resolved_with_many_patterns()
    rig.metadata.make("aa", 1)
    _beat(rig)
    rig.advance(11_000)
    _beat(rig)
    epoch, written = rig.group.epoch, len(rig.group.regexes)
    _write_parts_and_crash(rig, survives)
    assert (rig.group.epoch, written) == (epoch, _PATTERNS)
    rig.advance(11_000)
    _beat(rig)
    rig.advance(0)
    matching = [regex for regex, each in rig.group.regexes.items() if "aa" in each.topics]
    assert (matching, rig.group.epoch) == (["w.*|a{2}"], epoch + 1)
