"""Random histories of a consumer group: no partition is ever with two members, and the group comes to rest (G19).

Members of both protocols come, go, fall silent, miss answers and repeat them; topics grow; the coordinator crashes.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from ottla.coordinator.group.consumer.states import MemberState
from ottla.wire.errors import ErrorCode
from tests.coordinator.group.consumer.rig import FakeMember, Metadata, Rig, join_request


class ConsumerGroupMachine(RuleBasedStateMachine):
    """See the module."""

    members: Bundle[FakeMember] = Bundle("members")

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(Metadata(words=4, lines=3))
        self._count = 0
        self._alive: list[FakeMember] = []
        self._topics: dict[str, tuple[str, ...]] = {}
        #: Members whose last request was not answered.
        self._unsure: set[str] = set()

    @rule(target=members, topics=st.sampled_from([("words",), ("lines",), ("words", "lines")]))
    def join(self, topics: tuple[str, ...]) -> FakeMember:
        self._count += 1
        member = FakeMember(self.rig, f"m{self._count}", *topics)
        self._alive.append(member)
        self._topics[member.member_id] = topics
        return member

    @rule(member=members)
    def beat(self, member: FakeMember) -> None:
        more: dict[str, Any] = {}
        if member.member_id in self._unsure:  # after an answer that did not come a member says everything again
            more = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": self._topics[member.member_id]}
            self._unsure.discard(member.member_id)
        if member.beat(**more).error_code:
            self._rejoin(member)

    @rule(member=members)
    def beat_whose_answer_is_lost(self, member: FakeMember) -> None:
        epoch, owned = member.epoch, dict(member.owned)
        member.beat()
        member.epoch, member.owned = epoch, owned
        self._unsure.add(member.member_id)

    @rule(member=members, topics=st.sampled_from([("words",), ("lines",), ("words", "lines")]))
    def change_of_mind(self, member: FakeMember, topics: tuple[str, ...]) -> None:
        self._topics[member.member_id] = topics
        self._unsure.discard(member.member_id)
        if member.beat(rebalance_timeout_ms=60_000, subscribed_topic_names=topics).error_code:
            self._rejoin(member)

    @rule(member=members)
    def restart(self, member: FakeMember) -> None:
        self._rejoin(member)

    @rule(member=consumes(members))
    def leave(self, member: FakeMember) -> None:
        member.leave()
        self._alive.remove(member)

    @rule(seconds=st.integers(1, 50))
    def time_passes(self, seconds: int) -> None:
        self.rig.advance(1_000 * seconds)

    @rule(topic=st.sampled_from(["words", "lines"]))
    def partitions_come(self, topic: str) -> None:
        known = self.rig.metadata.find(topic)
        assert known is not None
        if known.partitions < 12:
            self.rig.metadata.make(topic, known.partitions + 1)

    @rule()
    def crash(self) -> None:
        self.rig.crash()

    @rule(member=members)
    def append_fails(self, member: FakeMember) -> None:
        self.rig.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        error = member.beat().error_code
        self.rig.fail_with = None
        if error not in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._rejoin(member)

    def _rejoin(self, member: FakeMember) -> None:
        """A member that is told that it is unknown or fenced gives up everything and begins anew."""
        member.owned, member.epoch = {}, 0
        self._unsure.discard(member.member_id)
        answer = self.rig.heartbeat(join_request(member.member_id, *self._topics[member.member_id]))
        assert not answer.error_code, answer
        member.epoch = answer.member_epoch
        if answer.assignment is not None:
            member.owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}

    @invariant()
    def no_partition_is_with_two_members(self) -> None:
        group = self.rig.shard.consumer_groups.find("readers")
        seen: dict[tuple[bytes, int], str] = {}
        for member in () if group is None else group.members.values():
            for part in (member.assigned, member.revoking):
                for topic_id, numbers in part.items():
                    for number in numbers:
                        assert seen.setdefault((topic_id, number), member.member_id) == member.member_id
            assert member.state is not MemberState.UNKNOWN

    def teardown(self) -> None:
        """Left alone, the group comes to rest, and everything that is read is with one reader."""
        for _ in range(12):
            before = [(member.epoch, member.owned) for member in self._alive]
            for member in self._alive:
                self.beat(member)
            if before == [(member.epoch, member.owned) for member in self._alive]:
                break
        else:
            raise AssertionError("the group does not come to rest")
        group = self.rig.shard.consumer_groups.find("readers")
        given = sorted((t, n) for member in self._alive for t, numbers in member.owned.items() for n in numbers)
        assert len(set(given)) == len(given)
        if group is not None and self._alive:
            assert set(group.members) >= {member.member_id for member in self._alive}
            ghosts = set(group.members) - {member.member_id for member in self._alive}
            read = {name for member in group.members.values() for name in member.topic_names}
            if not ghosts:
                expected = [
                    (topic.topic_id, number)
                    for topic in map(self.rig.metadata.find, read)
                    if topic is not None
                    for number in range(topic.partitions)
                ]
                assert given == sorted(expected)


ConsumerGroupMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestConsumerGroup = ConsumerGroupMachine.TestCase
