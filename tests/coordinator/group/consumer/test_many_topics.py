"""A member of a consumer group that has partitions of very many topics: its heartbeats are carried out in steps."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ottla.base.limits import MAX_NAMES_AT_ONCE
from ottla.base.steps import result_of
from ottla.coordinator.decision import Decision
from ottla.coordinator.group.consumer.group import ConsumerGroup, Resolved
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
from tests.coordinator.group.consumer.rig import CLIENT, CONFIG, GROUP, Metadata, Rig, join_request, settle

_NAMES = tuple(f"topic-{number}" for number in range(3 * MAX_NAMES_AT_ONCE + 1))
#: Lines of the coordinator that one step runs for each of its topics. All were one step, of hundreds of thousands.
_LINES_OF_EACH = 40
#: The same for the record of all that a member has, which is applied at once.
_APPLIED_OF_EACH = 25


class _Indexed(Metadata):
    """Topics that are found by their ids at once, as in a broker."""

    def __init__(self) -> None:
        super().__init__()
        self._by_id = {self.make(name, 1): name for name in _NAMES}

    def find_id(self, topic_id: bytes) -> Topic | None:
        return self.find(self._by_id[topic_id])


def _in_steps(rig: Rig, decide: Callable[[], Decision], applied_of_each: int = _APPLIED_OF_EACH) -> int:
    """Carry out an input; how many steps it took. `applied_of_each`: lines for each topic when records are applied."""
    count = 0
    while True:
        made: list[Decision] = []
        lines, _ = steps(lambda: made.append(decide()))  # noqa: B023
        assert lines < MAX_NAMES_AT_ONCE * _LINES_OF_EACH, f"{lines:,} lines in one step"
        lines, _ = steps(lambda: rig.run(made[0]._replace(rest=None)))  # noqa: B023
        assert lines < len(_NAMES) * applied_of_each, f"{lines:,} lines for records that are in the log"
        count += 1
        if made[0].rest is None:
            return count
        decide = made[0].rest


def _beat(
    rig: Rig, request: ConsumerGroupHeartbeatRequest, applied_of_each: int = _APPLIED_OF_EACH
) -> ConsumerGroupHeartbeatResponse:
    token = rig.token()
    _in_steps(
        rig,
        lambda: rig.shard.consumer_group_heartbeat(token, request, CLIENT, rig.now_ms, unique_id="u"),
        applied_of_each,
    )
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


def _classic(
    rig: Rig, names: tuple[str, ...] = _NAMES, instance_id: str | None = None, numbers: tuple[int, ...] = (0,)
) -> None:
    """A stable group of one member of the classic protocol that has these topics."""
    offered = (JoinGroupRequestProtocol("range", encode_subscription(ConsumerProtocolSubscription(names))),)
    token = rig.token()
    request = JoinGroupRequest(GROUP, 45_000, 60_000, "", instance_id, "consumer", offered)
    rig.run(rig.shard.join_group(token, request, CLIENT, rig.now_ms, unique_id="u", member_id_required=False))
    rig.advance(0)
    _synced(rig, rig.answers[token].member_id, {rig.answers[token].member_id: names}, instance_id, numbers)


def _synced(
    rig: Rig,
    leader: str,
    parts: Mapping[str, tuple[str, ...]],
    instance_id: str | None = None,
    numbers: tuple[int, ...] = (0,),
) -> None:
    """The leader gives each member these partitions of its topics."""
    given = tuple(
        SyncGroupRequestAssignment(
            member_id,
            encode_assignment(ConsumerProtocolAssignment(tuple(TopicPartition(name, numbers) for name in names))),
        )
        for member_id, names in parts.items()
    )
    token = rig.token()
    request = SyncGroupRequest(GROUP, 1, leader, instance_id, "consumer", "range", given)
    rig.run(rig.shard.sync_group(token, request, 0))
    assert rig.answers[token].assignment == dict(given)[leader]


_CLASSIC = replace(CONFIG, group_initial_rebalance_delay_ms=0)


def test_a_classic_group_of_very_many_topics_becomes_a_consumer_group_and_back_in_steps() -> None:
    """9,000 kept the loop for 71 and 22 ms; then for 22 and 12, in which the records were applied."""
    rig = Rig(_Indexed(), _CLASSIC)
    _classic(rig)
    _beat(rig, join_request("m2", *_NAMES), applied_of_each=1)
    (classic,) = (member for member in rig.group.members.values() if member.is_classic)
    assert len(classic.assigned) == len(_NAMES)
    before = _all_of(rig.group)
    rig.crash()
    assert _all_of(rig.group) == before, "what was made beside the log is what the log says"
    _beat(rig, ConsumerGroupHeartbeatRequest(GROUP, "m2", -1, topic_partitions=None), applied_of_each=1)
    ((listed,),) = rig.shard.list_groups()
    assert listed.group_type == "classic"


def _all_of(group: ConsumerGroup) -> dict[str, object]:
    return dict(vars(group))


def test_a_classic_group_of_very_many_members_becomes_a_consumer_group_and_back_in_steps() -> None:
    """None of them has many topics."""
    rig = Rig(_Indexed(), replace(_CLASSIC, group_initial_rebalance_delay_ms=1_000))
    parts: dict[str, tuple[str, ...]] = {}
    for at in range(len(_NAMES) // 10):
        names = _NAMES[10 * at : 10 * at + 10]
        parts[f"c-{at}"] = names
        offered = (JoinGroupRequestProtocol("range", encode_subscription(ConsumerProtocolSubscription(names))),)
        request = JoinGroupRequest(GROUP, 45_000, 60_000, "", None, "consumer", offered)
        token = rig.token()
        rig.run(rig.shard.join_group(token, request, CLIENT, rig.now_ms, unique_id=str(at), member_id_required=False))
    rig.advance(2_000)
    _synced(rig, rig.answers[token].leader, parts)
    _beat(rig, join_request("m2", *_NAMES), applied_of_each=10)
    assert sum(len(member.assigned) for member in rig.group.members.values()) == 10 * len(parts)
    _beat(rig, ConsumerGroupHeartbeatRequest(GROUP, "m2", -1, topic_partitions=None), applied_of_each=10)
    ((listed,),) = rig.shard.list_groups()
    assert listed.group_type == "classic"


class _Grows(Metadata):
    """A topic gets another partition behind one of the times that it is looked up."""

    def __init__(self, behind: int) -> None:
        super().__init__(words=4)
        self.left = behind

    def find(self, name: str) -> Topic | None:
        found = super().find(name)
        self.left -= 1
        if self.left == 0:
            self.make("words", 5)
        return found


def test_a_topic_that_grows_while_a_group_becomes_one_of_consumers_is_divided_anew() -> None:
    """The hash of the topics knew of it, and the assignment did not: nobody would ever have got the partition."""
    behind, has_ended = 0, False
    while not has_ended:
        behind += 1
        metadata = _Grows(0)
        rig = Rig(metadata, _CLASSIC)
        _classic(rig, ("words",), "i", (0, 1, 2, 3))
        metadata.left = behind
        member = rig.joined("m1", instance_id="i")  # in the place of the other: it subscribes to nothing new
        has_ended = metadata.left > 0
        settle(member)
        assert metadata.left > 0 or len(member.partitions) == 5, f"it grows when it has been looked up {behind} times"
    assert behind > 3
