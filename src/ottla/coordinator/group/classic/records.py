"""A group as its GroupMetadata record, and back."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import chain
from typing import Final

from ottla.base.steps import result_of
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


def group_record(group: Group) -> LogRecord:
    """The record of the present generation."""
    return result_of(group_record_in_steps(group))


def group_record_in_steps(group: Group) -> Generator[None, None, LogRecord]:
    """The same, and all members are not encoded in one step."""
    members, protocol = group.members, group.protocol
    if len(members) < _KEPT_FROM:
        pieces = [member_pieces(m, protocol, m.assignment) for m in members.values()]
        return generation_record(group, chain.from_iterable(pieces))
    encoded: list[bytes] = []
    for part in members.parts():
        encoded += members.encoded(
            part, protocol, lambda m: offsets_records.encode_member_metadata(_member(m, protocol, m.assignment))
        )
        yield
    return generation_record(group, encoded)


def member_pieces(member: Member, protocol: str | None, assignment: bytes) -> list[Buffer]:
    """A member with `assignment` in place of its own, as it stands in the record of its group."""
    return offsets_records.encode_member_pieces(_member(member, protocol, assignment))


def generation_record(group: Group, members: Iterable[Buffer]) -> LogRecord:
    """The record of the present generation, whose members are encoded already: all is put together once."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp_ms=_timestamp(group),
    )
    return LogRecord(
        offsets_records.encode_group_metadata_key(group.group_id),
        offsets_records.encode_group_metadata_with(value, len(group.members), members),
    )


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
    return group._replace(subscribed_topics=subscribed_topics(group))


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that a group of consumers subscribes to; None for other groups and if a subscription cannot be read.

    One that names more topics than a request may have elements is not read: it would keep the event loop.
    """
    return result_of(subscribed_topics_in_steps(group))


def subscribed_topics_in_steps(group: Group) -> Generator[None, None, frozenset[str] | None]:
    """The same, and all members are not looked at in one step."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    if not group.members:
        return frozenset()
    if group.protocol is None:
        return None
    protocol = group.protocol
    parts = (((each.member_id, each.metadata(protocol)) for each in part) for part in group.members.parts())
    return (yield from group.members.subscriptions.all_of(parts))


def _record(group_id: str, value: GroupMetadataValue) -> LogRecord:
    return LogRecord(
        offsets_records.encode_group_metadata_key(group_id), offsets_records.encode_group_metadata_value(value)
    )


def _timestamp(group: Group) -> int:
    return -1 if group.state_timestamp_ms is None else group.state_timestamp_ms
