"""SPEC G19: a broker's clock may be set back. What is due after a while must not wait for the hours in between.

Found by the simulator: members of the consumer protocol, and a clock that was set back by an hour.
"""

from ottla.coordinator.group.config import GroupConfig
from tests.coordinator.group.consumer.rig import Rig

_HOUR_MS = 3_600_000


def test_a_clock_that_was_set_back_does_not_hold_up_the_next_target() -> None:
    rig = Rig(config=GroupConfig())
    first = rig.joined("m1")
    rig.now_ms -= _HOUR_MS
    second = rig.joined("m2")
    assert rig.group.target_epoch == rig.group.epoch
    for member in (first, second, first, second):
        member.beat()
    assert len(second.partitions) == 2


def test_a_clock_that_was_set_back_does_not_hold_up_a_regular_expression() -> None:
    rig = Rig()
    rig.joined("m1", subscribed_topic_regex="l.*", subscribed_topic_names=())
    rig.advance(0)
    rig.now_ms -= _HOUR_MS
    rig.joined("m2", subscribed_topic_regex="li.*", subscribed_topic_names=())
    rig.advance(0)
    assert set(rig.group.regexes) == {"l.*", "li.*"}
