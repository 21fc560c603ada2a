"""Regular expressions that members subscribe to, when something goes wrong, now or in an earlier version."""

from __future__ import annotations

from ottla.coordinator.group.consumer.group import Resolved
from ottla.coordinator.group.consumer.records import regex_record
from ottla.wire.consumer_group_records import ConsumerGroupRegularExpressionKey, decode_key
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.coordinator.group.consumer.rig import GROUP, START_MS, FakeMember, Metadata, Rig, by_pattern, settle


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
