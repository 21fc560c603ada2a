"""Who the consumer is in its group."""

from ottla.base.types import TopicPartition
from ottla.client.core.offsets import ConsumerGroupMetadata
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatResponse
from tests.client.core.consumer.rig import Rig


def test_t11_a_member_that_was_expelled_is_not_nobody() -> None:
    """Offsets of nobody are not fenced (KIP-447): what another member works on too would be committed twice."""
    rig = Rig({"group.id": "g"})
    rig.subscribe("t")
    assert rig.core.member.last == ConsumerGroupMetadata("g")
    rig.become_stable(TopicPartition("t", 0), generation=4)
    before = rig.core.member.last
    assert before == ConsumerGroupMetadata("g", 4, "me")
    rig.wait(5.0)
    rig.refuse(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, HeartbeatResponse)
    assert not rig.core.member.in_generation
    assert rig.core.member.last == before, "its offsets are refused"
    rig.poll()
    rig.run_all_callbacks()
    assert rig.core.member.last == before
    rig.wait(1.0)
    rig.join(6, member_id="me again")
    assert rig.core.member.last == before, "it has nothing in this generation yet"
    rig.sync()
    assert rig.core.member.last == ConsumerGroupMetadata("g", 6, "me again")
