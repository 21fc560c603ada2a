"""`range` of the server's side: each topic is cut into as many ranges as it has subscribers (KIP-848).

Members stand in one order for all topics: static ones first, by instance id, then the others by member id. So members
of topics with the same number of partitions get the same numbers of each. The target before does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.assign.server.types import AssignorError, GroupSpec, MemberSpec, Partitions
from ottla.assign.types import java_order


class RangeServerAssignor:
    """See the module."""

    name: Final = "range"

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        """One range of every topic for each of its subscribers."""
        members = sorted(group.members.items(), key=lambda item: _order(*item))
        subscribers: dict[bytes, int] = {}
        for _, member in members:
            for topic_id in member.topic_ids:
                subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
        for topic_id in subscribers:
            if topic_id not in group.topics:
                raise AssignorError("Member is subscribed to a non-existent topic")
        seen: dict[bytes, int] = {}
        target: dict[str, Partitions] = {}
        for member_id, member in members:
            ranges: dict[bytes, range] = {}
            for topic_id in member.topic_ids:
                at = seen.get(topic_id, 0)
                seen[topic_id] = at + 1
                part = _part(group.topics[topic_id].partitions, subscribers[topic_id], at)
                if part:
                    ranges[topic_id] = part
            target[member_id] = ranges
        return target


def _part(partitions: int, members: int, at: int) -> range:
    """The range of the member that is number `at`: the first ones get one more when the division leaves a rest."""
    quota, rest = divmod(partitions, members)
    start = at * quota + min(at, rest)
    return range(start, start + quota + (at < rest))


def _order(member_id: str, member: MemberSpec) -> tuple[int, bytes]:
    if member.instance_id is not None:
        return 0, java_order(member.instance_id)
    return 1, java_order(member_id)
