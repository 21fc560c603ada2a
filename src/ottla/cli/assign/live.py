"""A live group as `ottla assign` rehearses it: its members, what they have, and the topics with their racks."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.assign import Cluster, PartitionInfo
from ottla.cli.assign.paper import PaperGroup, PaperMember
from ottla.cli.common import CommandError, admin_config


def live_group(
    group: str, strategy: str | None, protocol: str | None, bootstrap: str, config: Sequence[str] | None
) -> PaperGroup:
    """The group as it is now. Raises CommandError if there is none that could be rehearsed."""
    from ottla import Admin
    from ottla.client.admin.types import CONSUMER

    with Admin(admin_config(bootstrap, config)) as admin:
        found = admin.describe_groups([group])[group]
        if not found.exists:
            raise CommandError(f"there is no group {group}; `ottla groups list` shows which there are")
        if not found.members:
            raise CommandError(f"the group {group} has no members now ({found.state}); describe some with --member")
        is_consumer_group = (protocol or found.type) == CONSUMER
        if strategy is None and is_consumer_group != (found.type == CONSUMER):
            raise CommandError(f"{group} is a {found.type} group: say with --strategy what to compare it with")
        if strategy is None and not found.protocol:
            raise CommandError(f"the group {group} is being rebalanced ({found.state}): try again, or give --strategy")
        wanted = {topic for member in found.members for topic in member.topics}
        wanted |= {tp.topic for member in found.members for tp in member.partitions}
        known = {listing.name for listing in admin.list_topics()}
        described = admin.describe_topics(sorted(wanted & known))
        racks = {node.node_id: node.rack for node in admin.describe_cluster().nodes}
    cluster = Cluster(
        {
            name: tuple(
                PartitionInfo(each.partition, tuple(filter(None, (racks.get(node) for node in each.replicas))))
                for each in topic.partitions
            )
            for name, topic in described.items()
        }
    )
    members = {
        member.member_id: PaperMember(
            member.topics or tuple(sorted({tp.topic for tp in member.partitions})),
            member.partitions,
            member.rack_id,
            member.group_instance_id,
        )
        for member in found.members
    }
    ids = {name: topic.topic_id for name, topic in described.items()}
    return PaperGroup(strategy or found.protocol, cluster, members, 1, is_consumer_group, ids)
