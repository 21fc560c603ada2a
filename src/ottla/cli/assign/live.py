"""A live group as `ottla assign` rehearses it: its members, what they have, and the topics with their racks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from ottla.assign import Cluster, PartitionInfo
from ottla.base.patterns import PatternError, compile_pattern
from ottla.cli.assign.paper import PaperGroup, PaperMember, is_known
from ottla.cli.common import CommandError, admin_config
from ottla.cli.groups.common import existing_group

if TYPE_CHECKING:
    from ottla.client.admin.types import MemberDescription, TopicDescription

#: The protocol type of consumers, in either protocol.
_CONSUMERS = "consumer"
#: Examples that come with Ottla, by the type of their groups; somebody's own may be called the same.
_SHIPPED = {
    "classic": {
        "broadcast": "ottla.assign.examples:BroadcastAssignor",
        "rack": "ottla.assign.examples:RackAssignor",
        "weighted": "ottla.assign.examples:WeightedAssignor",
    },
    "consumer": {"lag-weighted": "ottla.assign.server.lag_weighted:LagWeighted"},
}
#: Ottla's history of groups: no pattern of a consumer means it.
_NEVER_MATCHED = {"__ottla_group_events"}


def live_group(
    group: str,
    strategy: str | None,
    protocol: str | None,
    bootstrap: str,
    config: Sequence[str] | None,
    more_topics: Set[str] = frozenset(),
) -> PaperGroup:
    """The group as it is now, with its members' topics and `more_topics`. Raises CommandError if there is none that
    could be rehearsed."""
    from ottla import Admin
    from ottla.client.admin.types import CONSUMER

    with Admin(admin_config(bootstrap, config)) as admin:
        found = existing_group(admin, group)
        if found.protocol_type not in ("", _CONSUMERS):
            raise CommandError(
                f"the members of {group} are no consumers (protocol type {found.protocol_type!r}): only they know how "
                "they divide their work"
            )
        if not found.members:
            raise CommandError(f"the group {group} has no members now ({found.state}); describe some with --member")
        is_consumer_group = (protocol or found.type) == CONSUMER
        if strategy is None and is_consumer_group != (found.type == CONSUMER):
            raise CommandError(f"{group} is a {found.type} group: say with --strategy what to compare it with")
        if strategy is None and not found.protocol:
            raise CommandError(f"the group {group} is being rebalanced ({found.state}): try again, or give --strategy")
        if strategy is None and not is_known(found.protocol, is_consumer_group=is_consumer_group):
            raise CommandError(f"{group} divides by {found.protocol!r}{_how_to_name(found.protocol, found.type)}")
        known = {listing.name for listing in admin.list_topics()} - _NEVER_MATCHED
        wanted = {member.member_id: _wanted(member, known) for member in found.members}
        described = admin.describe_topics(sorted(known & set(more_topics).union(*wanted.values())))
        lags = admin.list_group_lags(group) if is_consumer_group and strategy is not None and ":" in strategy else {}
        racks = {node.node_id: node.rack for node in admin.describe_cluster().nodes}
    members = {
        member.member_id: PaperMember(
            tuple(sorted(wanted[member.member_id])),
            member.partitions,
            member.rack_id,
            member.group_instance_id,
            member.client_id,
        )
        for member in found.members
    }
    ids = {name: topic.topic_id for name, topic in described.items()}
    behind: dict[str, dict[int, int]] = {}
    for tp, lag in lags.items():
        if lag.offsets is not None:
            behind.setdefault(tp.topic, {})[tp.partition] = max(lag.offsets, 0)
    return PaperGroup(
        strategy or found.protocol, _cluster(described, racks), members, 1, is_consumer_group, ids, behind
    )


def _how_to_name(assignor: str, group_type: str) -> str:
    """The end of a sentence: what to type for an assignor that has no short name."""
    own = "name its class with --strategy package.module:Class"
    shipped = _SHIPPED[group_type].get(assignor)
    if shipped is None:
        return f", which is none of Ottla's own assignors: {own}"
    return f". If that is the one that comes with Ottla add --strategy {shipped}, else {own}"


def _cluster(described: Mapping[str, TopicDescription], racks: Mapping[int, str | None]) -> Cluster:
    """The topics with the racks of their replicas."""
    return Cluster(
        {
            name: tuple(
                PartitionInfo(each.partition, tuple(filter(None, (racks.get(node) for node in each.replicas))))
                for each in topic.partitions
            )
            for name, topic in described.items()
        }
    )


def _wanted(member: MemberDescription, known: Set[str]) -> set[str]:
    """The topics that a member reads. `known` are all topics.

    A member with a pattern (KIP-848) that has no partition shows by nothing else what it would read.
    """
    wanted = {*member.topics, *(tp.topic for tp in member.partitions)}
    if member.pattern is not None:
        try:
            pattern = compile_pattern(member.pattern)
        except PatternError:  # another broker's RE2 takes more
            return wanted
        wanted |= {name for name in known if pattern.matches(name)}
    return wanted
