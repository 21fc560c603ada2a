"""A member of a consumer group that has partitions of very many topics: its heartbeats are carried out in steps."""

from collections.abc import Callable
from dataclasses import replace

from ottla.base.limits import MAX_NAMES_AT_ONCE
from ottla.base.steps import result_of
from ottla.coordinator.decision import Decision
from ottla.coordinator.group.consumer.group import Resolved
from ottla.coordinator.group.consumer.member import Member
from ottla.coordinator.group.consumer.subscriptions import topic_names
from ottla.coordinator.group.consumer.topics import Topic
from ottla.wire.consumer_protocol import encode_assignment, encode_subscription
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.cost import steps
from tests.coordinator.group.consumer.rig import CLIENT, CONFIG, GROUP, Metadata, Rig, join_request

_NAMES = tuple(f"topic-{number}" for number in range(3 * MAX_NAMES_AT_ONCE + 1))
#: Lines of the coordinator that one step runs for each of its topics. All were one step, of hundreds of thousands.
_LINES_OF_EACH = 40


class _Indexed(Metadata):
    """Topics that are found by their ids at once, as in a broker."""

    def __init__(self) -> None:
        super().__init__()
        self._by_id = {self.make(name, 1): name for name in _NAMES}

    def find_id(self, topic_id: bytes) -> Topic | None:
        return self.find(self._by_id[topic_id])


def _in_steps(rig: Rig, decide: Callable[[], Decision]) -> int:
    """Carry out an input; how many steps it took."""
    count = 0
    while True:
        made: list[Decision] = []
        lines, _ = steps(lambda: made.append(decide()))  # noqa: B023
        assert lines < MAX_NAMES_AT_ONCE * _LINES_OF_EACH, f"{lines:,} lines in one step"
        rig.run(made[0]._replace(rest=None))
        count += 1
        if made[0].rest is None:
            return count
        decide = made[0].rest


def _beat(rig: Rig, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    token = rig.token()
    _in_steps(rig, lambda: rig.shard.consumer_group_heartbeat(token, request, CLIENT, rig.now_ms, unique_id="u"))
    answer: ConsumerGroupHeartbeatResponse = rig.answers[token]
    assert answer.error_code == 0
    return answer


def _computed(rig: Rig) -> None:
    job = rig.jobs.pop()
    computed = job.assignor.assign(job.spec)
    assert _in_steps(rig, lambda: rig.shard.assigned(job, computed, rig.now_ms)) > 1


def test_a_member_gets_and_gives_up_very_many_topics_in_steps() -> None:
    """10,000 kept the loop for 30 to 60 ms: in the heartbeat that gets them, or in which they are given up."""
    rig = Rig(_Indexed())
    first = _beat(rig, join_request("m1", *_NAMES))
    _computed(rig)
    first = _beat(rig, ConsumerGroupHeartbeatRequest(GROUP, "m1", first.member_epoch, topic_partitions=None))
    assert first.assignment is not None
    assert len(first.assignment.topic_partitions) == len(_NAMES)
    second = _beat(rig, join_request("m2", *_NAMES))
    _computed(rig)
    first = _beat(rig, ConsumerGroupHeartbeatRequest(GROUP, "m1", first.member_epoch, topic_partitions=None))
    assert first.assignment is not None
    kept = tuple(TopicPartitions(*each) for each in first.assignment.topic_partitions)
    assert len(_NAMES) // 2 <= len(kept) <= len(_NAMES) // 2 + 1
    _beat(rig, ConsumerGroupHeartbeatRequest(GROUP, "m1", first.member_epoch, topic_partitions=kept))
    second = _beat(rig, ConsumerGroupHeartbeatRequest(GROUP, "m2", second.member_epoch, topic_partitions=None))
    assert second.assignment is not None
    assert len(second.assignment.topic_partitions) + len(kept) == len(_NAMES)


def test_very_many_topics_of_a_member_are_described_in_steps() -> None:
    rig = Rig(_Indexed())
    first = _beat(rig, join_request("m1", *_NAMES))
    _computed(rig)
    _beat(rig, ConsumerGroupHeartbeatRequest(GROUP, "m1", first.member_epoch, topic_partitions=None))
    describing, is_done = rig.shard.describe_consumer_group(GROUP), list[bool]()
    while not any(is_done):
        lines, _ = steps(lambda: is_done.append(next(describing, describing) is describing))
        assert lines < MAX_NAMES_AT_ONCE * _LINES_OF_EACH
    assert len(is_done) > 2 * len(_NAMES) // MAX_NAMES_AT_ONCE
    (member,) = result_of(rig.shard.describe_consumer_group(GROUP)).members
    assert len(member.assignment.topic_partitions) == len(_NAMES)


def test_members_with_one_pattern_share_the_topics_that_it_means() -> None:
    """300 members by a pattern of 9,900 topics took 104 ms in one turn: each had a set of its own, which was hashed."""
    resolved = {"topic-.*": Resolved(frozenset(_NAMES))}
    assert topic_names(Member("m1", topic_regex="topic-.*"), resolved) is resolved["topic-.*"].topics


def _classic(rig: Rig) -> None:
    """A stable group of one member of the classic protocol that has all topics."""
    offered = (JoinGroupRequestProtocol("range", encode_subscription(ConsumerProtocolSubscription(_NAMES))),)
    token = rig.token()
    request = JoinGroupRequest(GROUP, 45_000, 60_000, "", None, "consumer", offered)
    rig.run(rig.shard.join_group(token, request, CLIENT, rig.now_ms, unique_id="u", member_id_required=False))
    rig.advance(0)
    member_id = rig.answers[token].member_id
    assignment = encode_assignment(ConsumerProtocolAssignment(tuple(TopicPartition(name, (0,)) for name in _NAMES)))
    given = (SyncGroupRequestAssignment(member_id, assignment),)
    token = rig.token()
    rig.run(rig.shard.sync_group(token, SyncGroupRequest(GROUP, 1, member_id, None, "consumer", "range", given), 0))
    assert rig.answers[token].assignment == assignment


def test_a_classic_group_of_very_many_topics_becomes_a_consumer_group_and_back_in_steps() -> None:
    """9,000 kept the loop for 71 and 22 ms."""
    rig = Rig(_Indexed(), replace(CONFIG, group_initial_rebalance_delay_ms=0))
    _classic(rig)
    _beat(rig, join_request("m2", *_NAMES))
    (classic,) = (member for member in rig.group.members.values() if member.is_classic)
    assert len(classic.assigned) == len(_NAMES)
    _beat(rig, ConsumerGroupHeartbeatRequest(GROUP, "m2", -1, topic_partitions=None))
    ((listed,),) = rig.shard.list_groups()
    assert listed.group_type == "classic"
