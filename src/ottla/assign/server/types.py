"""What an assignor of the server side gets, and what it answers (KIP-848). To write your own: `docs/assignors.md`.

In the consumer protocol the group coordinator divides the partitions, not a member. Whenever the group changes it asks
the group's assignor for a *target assignment*: which member shall have which partitions in the end. The coordinator
then moves partitions one by one, so that no two members ever have the same partition. An assignor need not care about
that. It sees one picture of the group (`GroupSpec`) and answers with partitions for members.

Everything has an order, and a built-in assignor's answer depends on nothing else than on its input in this order.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from inspect import signature
from itertools import islice
from operator import index
from typing import Any, NamedTuple, Protocol, SupportsIndex, TypeAlias, cast, runtime_checkable

from ottla.assign.types import Assignor, BaseAssignor
from ottla.base.errors import OttlaError

#: What one member has or gets: partition numbers by topic id (16 bytes).
Partitions: TypeAlias = Mapping[bytes, Sequence[int]]


class AssignorError(OttlaError):
    """An assignor cannot divide these partitions; the message says why."""


class SubscriptionType(Enum):
    """Whether all members subscribe to the same topics."""

    HOMOGENEOUS = "homogeneous"
    HETEROGENEOUS = "heterogeneous"


class MemberSpec(NamedTuple):
    """One member: who it is, the ids of the topics it subscribes to, and its part of the target before."""

    topic_ids: Sequence[bytes]
    assigned: Partitions
    instance_id: str | None = None
    rack_id: str | None = None


class TopicSpec(NamedTuple):
    """One topic that members subscribe to. `racks`: for each partition the racks of its replicas, as far as known."""

    name: str
    partitions: int
    racks: Sequence[Sequence[str]] = ()


class GroupSpec(NamedTuple):
    """The group as the coordinator sees it: members by id, and by topic id every topic that one of them names.

    `lags`: how many records lie between the group's committed offset and the end of a partition, by topic id and
    partition; a partition that is not there has no committed offset. Only assignors that ask for it get it
    (`wants_lags`); Apache Kafka has nothing like it.
    """

    members: Mapping[str, MemberSpec]
    topics: Mapping[bytes, TopicSpec]
    subscription_type: SubscriptionType
    lags: Mapping[bytes, Mapping[int, int]] = {}

    def assigned(self) -> dict[bytes, set[int]]:
        """All partitions that the target before gives to a member."""
        found: dict[bytes, set[int]] = {}
        for member in self.members.values():
            for topic_id, partitions in member.assigned.items():
                found.setdefault(topic_id, set()).update(partitions)
        return found


@runtime_checkable
class ServerAssignor(Protocol):
    """An assignor of the server's side. One instance serves all groups of a broker and keeps nothing between calls."""

    @property
    def name(self) -> str:
        """The name that consumers may ask for (`group.remote.assignor`)."""
        ...

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        """Divide the partitions: for each member id what it gets. A member that is missing gets nothing.

        Called in a thread of its own, so it may take its time up to the broker's limit, and must not touch anything
        else. What it raises, a partition twice, one that is not there and one that nobody gets leave the group with
        the target before. An assignor that gives some partitions to nobody on purpose sets `every_partition = False`.
        """
        ...


def unfit(made: object) -> str | None:
    """Why `made` is no assignor of the server's side, as the end of a sentence; None if it is one.

    Raises what a property of `made` raises.
    """
    if isinstance(made, Assignor | BaseAssignor):
        return "is an assignor of the client's side: it belongs into partition.assignment.strategy"
    name, assign = getattr(made, "name", None), getattr(made, "assign", None)
    if not isinstance(name, str) or not name or not callable(assign):
        return "is no assignor: it needs a name and a method assign(group)"
    try:
        signature(assign).bind(None)
    except TypeError:
        return "is no assignor: its method assign cannot take the group as its one argument"
    except ValueError:  # one that is written in C may not say what it takes
        pass
    return None


def checked(assignor: ServerAssignor, group: GroupSpec, answer: object) -> dict[str, dict[bytes, tuple[int, ...]]]:
    """What `assignor` has answered for `group`, in a form of our own, if it is a target.

    Raises AssignorError when it is no mapping of mappings of partition numbers, when it has a member, topic or
    partition that is not there, or a partition twice, and when it gives a partition to nobody (on purpose:
    `every_partition = False`). An answer without an end, `itertools.count()` say, is read no further than a topic has
    partitions.
    """
    taken: dict[tuple[bytes, int], str] = {}
    target: dict[str, dict[bytes, tuple[int, ...]]] = {}
    for member_id, partitions in _items(answer, "it answered"):
        member = group.members.get(member_id) if isinstance(member_id, str) else None
        if member is None:
            raise AssignorError(f"partitions for {member_id!r}, which is no member of the group")
        given = target[member_id] = {}
        for topic_id, numbers in _items(partitions, f"it gave {member_id!r}"):
            topic = group.topics.get(topic_id) if isinstance(topic_id, bytes) else None
            if topic is None:
                raise AssignorError(f"partitions of topic {topic_id!r} for {member_id!r}: there is no such topic id")
            if topic_id not in member.topic_ids:
                raise AssignorError(f"partitions of {topic.name} for {member_id!r}, which does not subscribe to it")
            given[topic_id] = _numbers(topic, topic_id, numbers, member_id, taken)
    if getattr(assignor, "every_partition", True):
        _check_every_partition(group, taken)
    return target


def _items(answer: object, what: str) -> Iterable[tuple[Any, Any]]:
    if not isinstance(answer, Mapping):
        raise AssignorError(f"{what} {reprlib.repr(answer)}, not a dict")
    return answer.items()


def _numbers(
    topic: TopicSpec, topic_id: bytes, numbers: object, member_id: str, taken: dict[tuple[bytes, int], str]
) -> tuple[int, ...]:
    try:
        found = tuple(
            index(number) for number in islice(cast("Iterable[SupportsIndex]", numbers), topic.partitions + 1)
        )
    except TypeError:
        text = f"it gave {member_id!r} {reprlib.repr(numbers)} of {topic.name}, not a list of partition numbers"
        raise AssignorError(text) from None
    for number in found:
        if not 0 <= number < topic.partitions:
            raise AssignorError(f"partition {topic.name}-{number}: the topic has {topic.partitions}")
        other = taken.setdefault((topic_id, number), member_id)
        if other != member_id:
            raise AssignorError(f"partition {topic.name}-{number} for both {other!r} and {member_id!r}")
    if len(found) != len(set(found)):
        raise AssignorError(f"a partition of {topic.name} twice for {member_id!r}")
    return found


def _check_every_partition(group: GroupSpec, taken: Mapping[tuple[bytes, int], str]) -> None:
    for topic_id in dict.fromkeys(topic_id for member in group.members.values() for topic_id in member.topic_ids):
        topic = group.topics.get(topic_id)
        for number in range(topic.partitions if topic is not None else 0):
            if topic is not None and (topic_id, number) not in taken:
                raise AssignorError(
                    f"it gave {topic.name}-{number} to nobody (an assignor that means to do so sets "
                    "every_partition = False)"
                )
