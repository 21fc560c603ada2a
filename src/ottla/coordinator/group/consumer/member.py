"""One member of a consumer group, as a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from ottla.coordinator.group.consumer.states import MemberState
from ottla.wire.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)

#: Partitions by topic id, each with the member epoch in which the member got it (KIP-1251).
Assigned: TypeAlias = Mapping[bytes, Mapping[int, int]]
#: Partitions by topic id: a member's part of the target.
Target: TypeAlias = Mapping[bytes, frozenset[int]]

NOTHING_ASSIGNED: Final[Assigned] = MappingProxyType({})
NO_TARGET: Final[Target] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Member:
    """A member. Defaults are those of one that is not in the group yet."""

    member_id: str
    member_epoch: int = 0
    #: The epoch before; a member that did not hear of its new one may still use it.
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: Assigned = field(default_factory=lambda: NOTHING_ASSIGNED)
    #: What the member was told to give up and may still have.
    revoking: Assigned = field(default_factory=lambda: NOTHING_ASSIGNED)
    #: Set for a member that uses the classic protocol inside this group.
    classic: ClassicMemberMetadata | None = None

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    @property
    def classic_protocols(self) -> frozenset[str]:
        """The assignors of the client's side that it supports. A request may have named one twice."""
        return (
            frozenset() if self.classic is None else frozenset(each.name for each in self.classic.supported_protocols)
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has its part of the target of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """Since which member epoch the member has this partition; None when it does not."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return epoch if epoch is not None else self.revoking.get(topic_id, {}).get(partition)

    # -- after a change

    def moved(self, state: MemberState, epoch: int, assigned: Assigned, revoking: Assigned) -> Member:
        """The member one step further."""
        return replace(
            self,
            state=state,
            member_epoch=epoch,
            previous_epoch=self.member_epoch,
            assigned=assigned,
            revoking=revoking,
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> Member:
        """The member with what its record of type 5 says."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
        """The member with what its record of type 8 says."""
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_from_record(value.assigned_partitions, value.member_epoch),
            revoking=_from_record(value.partitions_pending_revocation, value.member_epoch),
        )

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        """What a record of type 5 says of the member."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=tuple(sorted(self.topic_names)),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=self.classic,
        )

    def current_value(
        self, assigned: tuple[CurrentTopicPartitions, ...], revoking: tuple[CurrentTopicPartitions, ...]
    ) -> ConsumerGroupCurrentMemberAssignmentValue:
        """What a record of type 8 says of the member: `to_topics` of what it has, and of what it gives up."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_epoch,
            state=int(self.state),
            assigned_partitions=assigned,
            partitions_pending_revocation=revoking,
        )


def in_epoch(partitions: Mapping[bytes, Iterable[int]], epoch: int) -> Assigned:
    """These partitions, all of them since `epoch`."""
    return {topic_id: dict.fromkeys(sorted(numbers), epoch) for topic_id, numbers in partitions.items()}


def to_topics(assigned: Assigned) -> tuple[CurrentTopicPartitions, ...]:
    """Partitions, and since when the member has them, as a record has them."""
    return tuple(
        CurrentTopicPartitions(topic_id, tuple(epochs), tuple(epochs.values())) for topic_id, epochs in assigned.items()
    )


def _from_record(topics: Iterable[CurrentTopicPartitions], member_epoch: int) -> Assigned:
    """A record of a Kafka before 4.3 has no epochs of its own for partitions; the member's stands for all of them."""
    assigned: dict[bytes, Mapping[int, int]] = {}
    for topic_id, numbers, epochs in topics:
        if epochs is None or len(epochs) != len(numbers):
            assigned[topic_id] = dict.fromkeys(numbers, max(member_epoch, 0))
        elif len(numbers) == 1:  # of thousands of topics these are nearly all: half the time
            assigned[topic_id] = {numbers[0]: epochs[0]}
        else:
            assigned[topic_id] = dict(zip(numbers, epochs, strict=True))
    return assigned
