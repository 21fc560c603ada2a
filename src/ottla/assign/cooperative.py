"""For assignors that support the cooperative protocol (KIP-429): what has to be given up before it can move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.assign.types import Assignment, Subscription
from ottla.base.types import TopicPartition


def changing_owner(
    subscriptions: Mapping[str, Subscription], target: Mapping[str, Iterable[TopicPartition]]
) -> set[TopicPartition]:
    """The partitions that `target` gives to another member than the one that owns them now."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member, partitions in target.items():
        owned = frozenset(subscriptions[member].owned_partitions)
        assigned = frozenset(partitions)
        added |= assigned - owned
        revoked |= owned - assigned
    return added & revoked


def held_back(subscriptions: Mapping[str, Subscription], given: Mapping[str, Assignment]) -> set[TopicPartition]:
    """The partitions that some member owns, that some member wants, and that `given` gives to nobody."""
    wanted = frozenset(topic for said in subscriptions.values() for topic in said.topics)
    owned = {tp for said in subscriptions.values() for tp in said.owned_partitions if tp.topic in wanted}
    return owned.difference(*(assignment.partitions for assignment in given.values()))


def hold_back(subscriptions: Mapping[str, Subscription], target: Mapping[str, Assignment]) -> dict[str, Assignment]:
    """`target` without the partitions that another member still owns. That member gives them up and joins again, and
    the next rebalance hands them over."""
    moving = changing_owner(subscriptions, {member: given.partitions for member, given in target.items()})
    return {
        member: given._replace(partitions=tuple(tp for tp in given.partitions if tp not in moving))
        for member, given in target.items()
    }
