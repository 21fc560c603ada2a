"""A group as its GroupMetadata record, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.coordinator.decision import LogRecord
from ottla.coordinator.group.classic.members import Member, Members
from ottla.coordinator.group.classic.state import CONSUMER_PROTOCOL_TYPE, Group, GroupState
from ottla.wire import offsets_records
from ottla.wire.codec import Buffer
from ottla.wire.messages.join_group import JoinGroupRequestProtocol
from ottla.wire.offsets_records import GroupMetadataValue, MemberMetadata

#: Groups of so many members keep them encoded: a static member that comes back writes all of them again.
_KEPT_FROM: Final = 50


def new_group_record(group: Group) -> LogRecord:
    """The record that a group's first join writes: it exists, and has no generation yet."""
    return _record(group.group_id, GroupMetadataValue(current_state_timestamp_ms=_timestamp(group)))


def group_record(group: Group, assignments: Mapping[str, bytes] | None = None) -> LogRecord:
    """The record of the present generation, with `assignments` by member id in place of the members' own."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp_ms=_timestamp(group),
    )
    if assignments is None and len(group.members) >= _KEPT_FROM:
        encoded = group.members.encoded(
            group.protocol, lambda m: offsets_records.encode_member_metadata(_member(m, group.protocol, m.assignment))
        )
        return LogRecord(
            offsets_records.encode_group_metadata_key(group.group_id),
            offsets_records.encode_group_metadata_with(value, len(encoded), encoded),
        )
    pieces: list[Buffer] = []  # all of them are put together once
    for m in group.members.values():
        assignment = m.assignment if assignments is None else assignments.get(m.member_id, b"")
        pieces += offsets_records.encode_member_pieces(_member(m, group.protocol, assignment))
    return LogRecord(
        offsets_records.encode_group_metadata_key(group.group_id),
        offsets_records.encode_group_metadata_with(value, len(group.members), pieces),
    )


def generation_bytes(group: Group, assignments: Mapping[str, bytes]) -> int:
    """What the members say of themselves, and their assignments: nearly all of the record of a large generation."""
    return sum(len(m.metadata(group.protocol)) + len(assignments.get(m.member_id, b"")) for m in group.members.values())


def _member(member: Member, protocol: str | None, assignment: bytes) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=assignment,
    )


def group_tombstone(group_id: str) -> LogRecord:
    """The record that deletes a group."""
    return LogRecord(offsets_records.encode_group_metadata_key(group_id), None)


def group_from_record(group_id: str, value: GroupMetadataValue) -> Group:
    """The group that a record describes: Stable with its members, or Empty without any (G17)."""
    members = Members(
        Member(
            member_id=m.member_id,
            group_instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            # Value version 0 has no rebalance timeout; such members used their session timeout for it.
            rebalance_timeout_ms=m.rebalance_timeout_ms if m.rebalance_timeout_ms != -1 else m.session_timeout_ms,
            session_timeout_ms=m.session_timeout_ms,
            protocols=(JoinGroupRequestProtocol(value.protocol or "", m.subscription),),
            assignment=m.assignment,
        )
        for m in value.members
    )
    group = Group(
        group_id=group_id,
        state=GroupState.STABLE if members else GroupState.EMPTY,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
        leader=value.leader,
        state_timestamp_ms=value.current_state_timestamp_ms if value.current_state_timestamp_ms != -1 else None,
        members=members,
    )
    return replace(group, subscribed_topics=subscribed_topics(group))


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that a group of consumers subscribes to; None for other groups and if a subscription cannot be read.

    One that names more topics than a request may have elements is not read: it would keep the event loop.
    """
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    if not group.members:
        return frozenset()
    if group.protocol is None:
        return None
    every = ((member.member_id, member.metadata(group.protocol)) for member in group.members.values())
    return group.members.subscriptions.all_of(every)


def _record(group_id: str, value: GroupMetadataValue) -> LogRecord:
    return LogRecord(
        offsets_records.encode_group_metadata_key(group_id), offsets_records.encode_group_metadata_value(value)
    )


def _timestamp(group: Group) -> int:
    return -1 if group.state_timestamp_ms is None else group.state_timestamp_ms
