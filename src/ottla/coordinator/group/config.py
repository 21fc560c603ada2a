"""What a broker's configuration says about groups; names and defaults are Kafka's (`GroupCoordinatorConfig`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.base.limits import MAX_PENDING_MEMBERS

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of every group shard of one broker. Times in milliseconds."""

    #: `group.min.session.timeout.ms`, `group.max.session.timeout.ms`
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 30 * _MINUTE_MS
    #: `group.initial.rebalance.delay.ms`: how long a group that was empty waits for more members.
    group_initial_rebalance_delay_ms: int = 3_000
    #: `group.max.size`
    group_max_size: int = 2**31 - 1
    #: Member ids that are given out and not used yet, in one group. No setting of Kafka's.
    max_pending_members: int = MAX_PENDING_MEMBERS
    #: How long the first join of a member may wait; not configurable in Kafka either.
    new_member_join_timeout_ms: int = 5 * _MINUTE_MS
    #: `offset.metadata.max.bytes`; Kafka counts characters.
    offset_metadata_max_bytes: int = 4_096
    #: `offsets.retention.minutes`
    offsets_retention_ms: int = 7 * _DAY_MS
    #: `offsets.retention.check.interval.ms`
    offsets_retention_check_interval_ms: int = 10 * _MINUTE_MS
    #: How long to wait before an append that failed in a timer is tried again.
    append_retry_ms: int = 1_000
    #: `group.consumer.session.timeout.ms`, `group.consumer.heartbeat.interval.ms`,
    #: `group.consumer.assignment.interval.ms` (KIP-1263): what holds for a group without settings of its own.
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    #: The least interval that members are told while their group settles; None: always the one above, as Apache Kafka.
    consumer_settling_heartbeat_ms: int | None = None
    #: `group.consumer.max.size`
    consumer_max_size: int = 2**31 - 1
    #: `group.consumer.regex.refresh.interval.ms`
    regex_refresh_interval_ms: int = 10 * _MINUTE_MS
    #: `group.consumer.migration.policy`: may a classic group become a consumer group, and back?
    upgrade: bool = True
    downgrade: bool = True
    #: How long a group goes on with the target it has before an assignor that failed is asked again.
    assignor_retry_ms: int = 30_000


#: A group's own settings (ConfigResource of type GROUP), by name.
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"


class GroupSettings:
    """What holds for one consumer group: its own settings, else the broker's. `own` gives a group's own, by name."""

    def __init__(self, config: GroupConfig, own: Callable[[str], Mapping[str, int]] | None = None) -> None:
        self._config = config
        self._own = own or (lambda group_id: {})

    def session_timeout_ms(self, group_id: str) -> int:
        """How long a member may be silent."""
        return self._own(group_id).get(SESSION_TIMEOUT, self._config.consumer_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often a member shall send heartbeats."""
        return self._own(group_id).get(HEARTBEAT_INTERVAL, self._config.consumer_heartbeat_interval_ms)

    def assignment_interval_ms(self, group_id: str) -> int:
        """The least time between two target assignments."""
        return self._own(group_id).get(ASSIGNMENT_INTERVAL, self._config.consumer_assignment_interval_ms)
