"""A member of a classic group, on the whole core."""

from collections.abc import Mapping

from ottla.assign import Assignor
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.group.classic.states import State
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatResponse
from tests.client.cooperative import CooperativeRoundRobin
from tests.client.core.consumer.heard import Heard
from tests.client.core.consumer.rig import Rig

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP: dict[str, object] = {"group.id": "g", "enable.auto.commit": False, "max.poll.interval.ms": 300_000}


def member(*, cooperative: bool = False, config: Mapping[str, object] | None = None) -> tuple[Rig, Heard]:
    """A stable member of generation 1 that has partition A."""
    strategy: list[Assignor] | None = [CooperativeRoundRobin()] if cooperative else None
    rig, heard = Rig({**GROUP, **(config or {})}, strategy=strategy), Heard()
    heard.subscribe(rig, "t")
    rig.become_stable(A)
    assert rig.core.state is State.STABLE
    heard.said.clear()
    return rig, heard


def beat(rig: Rig, code: ErrorCode) -> None:
    """A heartbeat is sent and answered."""
    rig.wait(3.1)
    rig.refuse(ApiKey.HEARTBEAT, code, HeartbeatResponse)
