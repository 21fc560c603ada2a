"""Members of a group of the consumer protocol, for the tests of their core."""

from collections.abc import Mapping

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.group.consumer.states import State
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.client.core.consumer.heard import Heard
from tests.client.core.consumer.rig import Rig, snapshot

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
GROUP: dict[str, object] = {"group.id": "g", "group.protocol": "consumer", "enable.auto.commit": False}
BEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


def joining(config: Mapping[str, object] | None = None) -> tuple[Rig, Heard]:
    """A consumer that has asked to join."""
    rig, heard = Rig({**GROUP, **(config or {})}, known=snapshot(t=2, u=1)), Heard()
    heard.subscribe(rig, "t", "u")
    rig.poll()
    return rig, heard


def member(*tps: TopicPartition, config: Mapping[str, object] | None = None) -> tuple[Rig, Heard]:
    """A stable member with these partitions; nothing is on its way."""
    rig, heard = joining(config)
    rig.beat(1, *tps)
    reconcile(rig)
    rig.beat(1, target=False)
    assert rig.core.state is State.STABLE
    heard.said.clear()
    return rig, heard


def reconcile(rig: Rig) -> None:
    """The user polls until all callbacks have run."""
    rig.poll()
    while rig.calls:
        rig.run_callback()
        rig.poll()


def new_target(rig: Rig, epoch: int, *tps: TopicPartition) -> None:
    """The next heartbeat brings it."""
    rig.wait(1.0)
    rig.beat(epoch, *tps)


def commit_answer(code: ErrorCode) -> OffsetCommitResponse:
    """The answer to a commit of one partition of t."""
    part = OffsetCommitResponsePartition(0, code)
    return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=(part,)),))
