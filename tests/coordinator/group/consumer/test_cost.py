"""What a step of a member costs when it subscribes to many names, counted and not timed.

Who names ten thousand topics does it once, and in steps. When the member then gives up a partition, or gets one, the
names must not cost anything again.
"""

from ottla.base.limits import MAX_NAMES_AT_ONCE, MAX_SUBSCRIBED_NAMES
from ottla.coordinator.decision import Decision
from ottla.coordinator.group.consumer.topics import Topic
from tests.coordinator.cost import steps
from tests.coordinator.group.consumer.rig import CLIENT, Metadata, Rig, join_request


class _Asked(Metadata):
    """Counts how often a topic is looked up by its name."""

    finds = 0

    def find(self, name: str) -> Topic | None:
        self.finds += 1
        return super().find(name)


def _cost_of_a_step(names: int) -> tuple[int, int]:
    """Lines of the coordinator, and topics that were looked up, when a member gives up what another one shall have."""
    metadata = _Asked(words=4)
    rig = Rig(metadata)
    subscribed = ("words", *(f"missing-{number}" for number in range(names)))
    first = rig.joined("m1", *subscribed)
    rig.joined("m2", *subscribed)
    first.beat()
    assert first.partitions == [0, 1]
    epoch, before = first.epoch, metadata.finds
    lines, _ = steps(first.beat)
    assert first.epoch > epoch
    return lines, metadata.finds - before


def test_a_step_costs_the_same_however_many_names_the_member_subscribes_to() -> None:
    assert _cost_of_a_step(1_000) == _cost_of_a_step(10)


def _first_heartbeat(rig: Rig, names: int) -> tuple[int, Decision]:
    """Of a member that names so many topics, besides one that is there."""
    token = rig.token()
    request = join_request("m1", "words", *(f"missing-{number}" for number in range(names - 1)))
    return token, rig.shard.consumer_group_heartbeat(token, request, CLIENT, rig.now_ms, unique_id="u")


def test_very_many_names_are_taken_in_steps() -> None:
    """10,000 had taken 17 to 24 ms in one turn."""
    rig, lines = Rig(Metadata(words=4)), []
    token, decision = _first_heartbeat(rig, MAX_SUBSCRIBED_NAMES)
    while (rest := decision.rest) is not None:
        assert decision == Decision(rest=rest, is_undecided=True)
        made: list[Decision] = []
        lines.append(steps(lambda: made.append(rest()))[0])  # noqa: B023
        (decision,) = made
    lines.append(steps(lambda: rig.run(decision))[0])
    assert len(lines) == 13
    assert max(lines) < 0.2 * sum(lines), lines
    assert rig.answers[token].error_code == 0
    assert rig.group.members["m1"].topic_names >= {"words", "missing-1"}


def test_few_names_are_taken_at_once() -> None:
    rig = Rig(Metadata(words=4))
    _, decision = _first_heartbeat(rig, MAX_NAMES_AT_ONCE)
    assert decision.rest is None


def test_a_topic_that_goes_between_two_steps_is_seen_by_the_next_heartbeat() -> None:
    rig = Rig(Metadata(words=4))
    token, decision = _first_heartbeat(rig, MAX_SUBSCRIBED_NAMES)
    assert decision.rest is not None
    decision = decision.rest()
    rig.metadata.delete("words")
    rig.run(decision)
    answer = rig.answers[token]
    assert answer.error_code == 0
    member = rig.heartbeat(
        join_request("m1", "words")._replace(member_epoch=answer.member_epoch, topic_partitions=None)
    )
    assert member.error_code == 0
    assert not rig.group.members["m1"].assigned
