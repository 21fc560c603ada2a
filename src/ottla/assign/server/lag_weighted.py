"""A worked example of an assignor in Python: members get the same amount of work, not the same number of partitions.

    group.consumer.assignors=uniform,range,ottla.assign.server.lag_weighted:LagWeighted

and a consumer asks for it with `group.remote.assignor=lag-weighted`. Work is what the group has not read yet. Only the
coordinator knows that of all partitions at one time, so no assignor of the client's side could do this.

A partition that nobody has read yet weighs as much as an average one. Every partition has a small weight of its own, so
that members with nothing to catch up on have as many partitions each. A partition stays with the member that has it,
unless that member has more than its share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.assign.server.types import GroupSpec, Partitions

#: The weight of a partition without any lag, in records.
_BASE: Final = 100
#: How much more than its share a member may keep, so that small changes of the lag move nothing.
_TOLERANCE: Final = 1.2


class LagWeighted:
    """See the module."""

    name = "lag-weighted"
    #: The coordinator fills in `GroupSpec.lags`.
    wants_lags = True

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        """Keep what fits into a member's share, and give the rest, heaviest first, to whoever has least."""
        weights = _weights(group)
        share = sum(weights.values()) / max(len(group.members), 1)
        load = dict.fromkeys(group.members, 0.0)
        target: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in group.members}
        free = dict(weights)
        for member_id, member in group.members.items():
            held = [(topic_id, number) for topic_id, numbers in member.assigned.items() for number in numbers]
            for partition in sorted(held, key=lambda each: -weights.get(each, 0.0)):
                fits = load[member_id] + weights.get(partition, 0.0) <= share * _TOLERANCE
                if partition in free and partition[0] in member.topic_ids and fits:
                    _give(target[member_id], partition)
                    load[member_id] += free.pop(partition)
        for partition, weight in sorted(free.items(), key=lambda item: (-item[1], item[0])):
            readers = [each for each, member in group.members.items() if partition[0] in member.topic_ids]
            least = min(readers, key=lambda each: (load[each], each))
            _give(target[least], partition)
            load[least] += weight
        return target


def _weights(group: GroupSpec) -> dict[tuple[bytes, int], float]:
    """The weight of every partition that a member reads."""
    read = {topic_id for member in group.members.values() for topic_id in member.topic_ids}
    lags = [lag for numbers in group.lags.values() for lag in numbers.values()]
    unknown = sum(lags) / len(lags) if lags else 0.0
    return {
        (topic_id, number): _BASE + group.lags.get(topic_id, {}).get(number, unknown)
        for topic_id in sorted(read)
        for number in range(group.topics[topic_id].partitions)
    }


def _give(target: dict[bytes, list[int]], partition: tuple[bytes, int]) -> None:
    target.setdefault(partition[0], []).append(partition[1])
