"""What a step of a member costs when it subscribes to many names, counted and not timed.

Who names ten thousand topics does it once. When the member then gives up a partition, or gets one, the names must not
cost anything again.
"""

from ottla.coordinator.group.consumer.topics import Topic
from tests.coordinator.cost import steps
from tests.coordinator.group.consumer.rig import Metadata, Rig


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
