"""How soon a member shall send its next heartbeat.

As a rule after `group.consumer.heartbeat.interval.ms`. Members only hear of a new target, and of partitions that became
free, at a heartbeat. So a group of eight that starts at once waits for two such intervals, ten seconds. The interval is
the broker's to say in every answer (KIP-848), so that while a group settles its members are asked to come back sooner:
when the next target may be computed (KIP-1263), or soon when they wait for partitions that others give up.

Apache Kafka always says the interval of its configuration.
"""

from __future__ import annotations

from ottla.base.clock import lasts
from ottla.base.limits import SETTLING_MS_PER_MEMBER
from ottla.coordinator.group.consumer.member import Member
from ottla.coordinator.group.consumer.room import Draft
from ottla.coordinator.group.consumer.states import MemberState


def heartbeat_interval_ms(draft: Draft, member: Member, *, epoch: int, target_epoch: int) -> int:
    """Milliseconds to the next heartbeat of `member`, which is as it will be; so are the group's epochs."""
    group, settings = draft.group, draft.room.settings
    usual_ms = settings.heartbeat_interval_ms(group.group_id)
    soon_ms = draft.room.config.consumer_settling_heartbeat_ms
    if soon_ms is None:
        return usual_ms
    computed_ms = draft.now_ms if target_epoch > group.target_epoch else group.target_timestamp_ms
    wait_ms = usual_ms
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        # Who must give up hears of it within one usual interval. One who takes longer is not waited for in haste.
        if lasts(computed_ms, 2 * usual_ms, draft.now_ms):
            wait_ms = soon_ms
    elif epoch == target_epoch or not _has_failed(draft, epoch):
        # A target that is missing, or so young that members who come now wait for the next one.
        pause_ms = settings.assignment_interval_ms(group.group_id)
        if lasts(computed_ms, pause_ms, draft.now_ms):
            wait_ms = computed_ms + pause_ms - draft.now_ms
        elif epoch > target_epoch:
            wait_ms = soon_ms
    return min(usual_ms, max(wait_ms, soon_ms, len(group.members) * SETTLING_MS_PER_MEMBER))


def _has_failed(draft: Draft, epoch: int) -> bool:
    """Whether the assignor has failed on this epoch: then haste does not bring a target sooner."""
    failed = draft.soft.failed
    return failed is not None and failed.epoch >= epoch
