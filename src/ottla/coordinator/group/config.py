"""What a broker's configuration says about groups; names and defaults are Kafka's (`GroupCoordinatorConfig`)."""

from __future__ import annotations

from dataclasses import dataclass

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
