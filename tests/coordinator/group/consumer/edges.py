"""What a consumer group answers to requests at the edge of sense: each answer whole, field by field.

Part of the talks of `talks.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ottla.wire.apis import API, ApiKey
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest
from tests.coordinator.group.consumer.conversation import Conversation

_HIGHEST: Final = 2**31 - 1
_HEARTBEAT: Final = ApiKey.CONSUMER_GROUP_HEARTBEAT
_DESCRIBE: Final = ApiKey.CONSUMER_GROUP_DESCRIBE


def _beat(talk: Conversation, member: str, epoch: int, *, version: int = 1, **fields: Any) -> None:
    """A heartbeat of which nothing has changed, but for `fields`."""
    usual = ConsumerGroupHeartbeatRequest(talk.group_id, topic_partitions=None)
    request = usual._replace(**{"member_id": talk.full(member), "member_epoch": epoch, **fields})
    talk.ask(_HEARTBEAT, version, request, usual)


def _join(talk: Conversation, member: str, **fields: Any) -> None:
    """A first heartbeat of a member that wants `t`."""
    names = (talk.name("t"),)
    first = {"rebalance_timeout_ms": 300_000, "subscribed_topic_names": names, "topic_partitions": ()}
    _beat(talk, member, 0, **{**first, **fields})


def _describe(talk: Conversation, *others: str, version: int = 1, operations: bool = False) -> None:
    talk.ask(_DESCRIBE, version, ConsumerGroupDescribeRequest((talk.group_id, *others), operations))


def _owned(talk: Conversation, **topics: Iterable[int]) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(talk.topic_id(each), tuple(numbers)) for each, numbers in topics.items())


def every_version(talk: Conversation) -> None:
    """A member's life in each version, and what each version of the other requests tells of it."""
    for version in (0, 1):
        member = f"m{version}"
        _join(talk, member, version=version, rack_id="r1", instance_id=f"i{version}")
        _beat(talk, member, 2 + 2 * version, version=version, instance_id=f"i{version}")
        for other in (0, 1):
            _describe(talk, version=other, operations=True)
            _describe(talk, "", "none-such", talk.group_id, version=other)
        for other in range(7):
            talk.ask(ApiKey.DESCRIBE_GROUPS, other, DescribeGroupsRequest((talk.group_id,), other >= 3))
        for other in range(2, 11):
            talk.commit(member, 2 + 2 * version, other, 0, version=other)
            talk.fetch(member, 2 + 2 * version, 0, version=max(other, 9))
        _beat(talk, member, -1, version=version)
        _beat(talk, member, -1, version=version, instance_id=f"i{version}")
        _describe(talk, version=version)


def ids_made_by_the_broker(talk: Conversation) -> None:
    """Only version 0 may join without a member id."""
    _join(talk, "", version=1)
    _join(talk, "", version=0)
    _beat(talk, "", 2, version=0)
    _beat(talk, "", 2, version=1)
    _beat(talk, "", -1, version=0)
    _beat(talk, "", -2, version=0, instance_id="i1")
    _beat(talk, "M0", 2, version=1)
    _beat(talk, "M0", -1, version=1)


def refused_joins(talk: Conversation) -> None:
    """A first heartbeat with one thing wrong; and what is strange, but allowed."""
    _join(talk, "m1", group_id="")
    for timeout in (-1, -2, 0):
        _join(talk, "r", rebalance_timeout_ms=timeout)
    _join(talk, "m1", topic_partitions=None)
    _join(talk, "m1", topic_partitions=_owned(talk, t=(0,)))
    _join(talk, "m1", topic_partitions=_owned(talk, t=()))
    _join(talk, "m1", topic_partitions=(TopicPartitions(b"?" * 16, (0,)),))
    _join(talk, "m1", subscribed_topic_names=None)
    _join(talk, "m1", subscribed_topic_names=None, subscribed_topic_regex="")
    _join(talk, "m1", subscribed_topic_regex="(")
    _join(talk, "m1", subscribed_topic_regex="[")
    _join(talk, "m1", subscribed_topic_regex="*")
    _join(talk, "m1", subscribed_topic_regex="a{2000}")
    _join(talk, "m1", subscribed_topic_regex="(?=a)")
    _join(talk, "m1", subscribed_topic_regex="\\1")
    for assignor in ("", " ", "Uniform", "UNIFORM", "org.apache.kafka.coordinator.group.assignor.UniformAssignor"):
        _join(talk, "m1", server_assignor=assignor)
    for empty in ("", " ", "\t"):
        _join(talk, "m1", instance_id=empty)
        _join(talk, "m1", rack_id=empty)
        _join(talk, empty)
    _join(talk, "m1", instance_id="i" * 300)
    _join(talk, "m" * 300)
    _describe(talk)


def strange_subscriptions(talk: Conversation) -> None:
    """Names twice, of topics that there are not, and of none that could be."""
    t = talk.name("t")
    _join(talk, "m1", subscribed_topic_names=(t, t))
    _describe(talk)
    _beat(talk, "m1", 2, subscribed_topic_names=(t, "", "a b", "x" * 300, "..", "none"))
    _describe(talk)
    _beat(talk, "m1", 2, subscribed_topic_names=(talk.name("u"), t))
    _beat(talk, "m1", 3, subscribed_topic_names=(t, talk.name("u")))
    _beat(talk, "m1", 4, subscribed_topic_names=(t, talk.name("u")))
    _describe(talk)
    _beat(talk, "m1", 4, subscribed_topic_names=())
    _describe(talk)


def strange_partitions(talk: Conversation) -> None:
    """What a member says it owns: twice, unknown, out of range, nothing."""
    _join(talk, "m1")
    _join(talk, "m2")
    _beat(talk, "m1", 2, topic_partitions=_owned(talk, t=(0, 1, 2, 3)))
    for owned in (
        (TopicPartitions(b"?" * 16, (0,)),),
        (TopicPartitions(bytes(16), ()),),
        _owned(talk, t=(-1,)),
        _owned(talk, t=(99, _HIGHEST)),
        _owned(talk, u=(0,)),
        _owned(talk, t=(0, 0, 1, 1, 2, 3)),
        (*_owned(talk, t=(0, 1)), *_owned(talk, t=(2, 3))),
    ):
        _beat(talk, "m1", 2, topic_partitions=owned)
    _describe(talk)
    _beat(talk, "m1", 2, topic_partitions=(*_owned(talk, t=(0,)), *_owned(talk, t=(1,))))
    _beat(talk, "m1", 3, topic_partitions=_owned(talk, t=(0, 1)))
    _beat(talk, "m2", 3, topic_partitions=_owned(talk, t=(0, 1, 2, 3)))
    _beat(talk, "m2", 3, topic_partitions=())
    _describe(talk)


def epochs_out_of_range(talk: Conversation) -> None:
    """Epochs that no member has, for a member, a static member and nobody."""
    epochs = (-(2**31), -4, -3, -2, 1, 3, 4, _HIGHEST)
    for epoch in epochs:
        _beat(talk, "m1", epoch)
    _join(talk, "m1")
    _join(talk, "s1", instance_id="i1")
    for epoch in epochs:
        for member, instance in (("m1", None), ("s1", "i1"), ("s1", None), ("s1", "i2"), ("m1", "i1"), ("m9", "i1")):
            if epoch != -2 or instance != "i1" or member != "s1":
                _beat(talk, member, epoch, instance_id=instance)
    _describe(talk)


def out_of_order(talk: Conversation) -> None:
    """Joins that are repeated, beats after a leave, leaves after a leave, joins with the state of another."""
    _beat(talk, "m1", -1)
    _beat(talk, "m1", 5)
    _join(talk, "m1")
    _join(talk, "m1")
    _join(talk, "m1", subscribed_topic_names=(talk.name("u"),))
    _join(talk, "m1", server_assignor="range")
    _beat(talk, "m1", 3, subscribed_topic_names=(talk.name("t"),), topic_partitions=())
    _describe(talk)
    _beat(talk, "m1", 4, server_assignor="")
    _beat(talk, "m1", 4, server_assignor="none")
    _beat(talk, "m1", 4, subscribed_topic_regex="(")
    _beat(talk, "m1", 4, rack_id="")
    _beat(talk, "m1", 4, instance_id="")
    _beat(talk, "m1", 4, rebalance_timeout_ms=0)
    _beat(talk, "m1", 4, rebalance_timeout_ms=-7)
    _beat(talk, "m1", 4, rack_id="r9")
    _describe(talk)
    _beat(talk, "m1", -1)
    _beat(talk, "m1", 4)
    _beat(talk, "m1", -1)
    _beat(talk, "m1", -2)
    _beat(talk, "m2", -1)
    _join(talk, "m1")
    _describe(talk)


def static_out_of_order(talk: Conversation) -> None:
    """A static member whose first answer was lost, that leaves twice, and whose place others want."""
    _join(talk, "s1", instance_id="i1")
    _join(talk, "s1", instance_id="i1")
    _join(talk, "s2", instance_id="i1")
    _join(talk, "s1")
    _describe(talk)
    _beat(talk, "s1", -2, instance_id="i1")
    _beat(talk, "s1", -2, instance_id="i1")
    _beat(talk, "s1", -1, instance_id="i1")
    _describe(talk)
    _join(talk, "s1", instance_id="i1")
    _beat(talk, "s1", -2)
    _beat(talk, "s1", -2, instance_id="i1")
    _join(talk, "s1", instance_id="i1")
    _join(talk, "s1", instance_id="i1")
    _beat(talk, "s1", -2, instance_id="i1")
    _join(talk, "s2", instance_id="i1", server_assignor="range", rack_id="r1")
    _join(talk, "s1", instance_id="i1")
    _beat(talk, "s1", 2, instance_id="i1")
    _beat(talk, "s1", -1, instance_id="i1")
    _describe(talk)


def static_after_dynamic(talk: Conversation) -> None:
    """A member that has been there without an instance id takes one: a free one, and one of a member that has left."""
    _join(talk, "m1")
    _join(talk, "m1", instance_id="i1")
    _beat(talk, "m1", 2)
    _describe(talk)
    _join(talk, "m2")
    _join(talk, "m2", instance_id="i1")
    _beat(talk, "m1", 2, topic_partitions=_owned(talk, t=(0, 1)), instance_id="i1")
    _beat(talk, "m2", 3, topic_partitions=())
    _beat(talk, "m1", -2, instance_id="i1")
    _describe(talk)
    _join(talk, "m2", instance_id="i1")
    _describe(talk)
    _beat(talk, "m2", 3, instance_id="i1")
    _beat(talk, "m2", 4, instance_id="i1")
    _beat(talk, "m2", -1, instance_id="i1")
    _describe(talk)


def full(talk: Conversation) -> None:
    """A group that has as many members as it may (`group.consumer.max.size` is 3 here)."""
    for number in range(4):
        _join(talk, f"m{number}")
    _join(talk, "m2")
    _join(talk, "s3", instance_id="i3")
    _beat(talk, "m9", 3)
    _beat(talk, "m0", -1)
    _join(talk, "s3", instance_id="i3")
    _beat(talk, "s3", -2, instance_id="i3")
    _join(talk, "m4")
    _join(talk, "s4", instance_id="i3")
    _describe(talk)


def classic_requests(talk: Conversation) -> None:
    """Requests of the classic protocol, about members that do not speak it."""
    _join(talk, "m1")
    for version in range(6):
        talk.ask(ApiKey.SYNC_GROUP, version, SyncGroupRequest(talk.group_id, 2, "m1", None, "consumer", "range"))
        members = (MemberIdentity("m9"),) if version >= 3 else ()
        talk.ask(ApiKey.LEAVE_GROUP, version, LeaveGroupRequest(talk.group_id, members, "m9"))
    for version in range(5):
        talk.ask(ApiKey.HEARTBEAT, version, HeartbeatRequest(talk.group_id, 2, "m1"))
    _describe(talk)
    talk.ask(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(talk.group_id, (MemberIdentity("m1"),)))
    _describe(talk)


def broken(talk: Conversation) -> None:
    """Requests that are cut off or go on too long, with null or wrong sizes, and versions that there are not."""
    heartbeat = ConsumerGroupHeartbeatRequest(talk.group_id, "m1", 5, "i1", "r1", 1, ("t",), None, "range", None)
    for key, message in ((_HEARTBEAT, heartbeat), (_DESCRIBE, ConsumerGroupDescribeRequest((talk.group_id,)))):
        for version in range(API[key].max_version + 1):
            talk.broken(key, version, message)
            talk.spoilt(key, version, message)
        for version in (-1, API[key].max_version + 1, 2**15 - 1):
            talk.unknown_version(key, version)
    _describe(talk)


EDGES: Final = (
    every_version,
    ids_made_by_the_broker,
    refused_joins,
    strange_subscriptions,
    strange_partitions,
    epochs_out_of_range,
    out_of_order,
    static_out_of_order,
    static_after_dynamic,
    full,
    classic_requests,
    broken,
)
