"""A consumer group: what the records of the log say of it. Only the `apply` methods change it.

Beside the records' own content it counts what every heartbeat would else count over all members: who subscribes to a
topic or a regular expression, who wants which assignor, who has a partition in which epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import ClassVar, Final, NamedTuple, TypeVar

from ottla.base.require import require
from ottla.coordinator.group.consumer.member import NO_TARGET, Assigned, Member, Target
from ottla.coordinator.group.consumer.states import LEAVE_EPOCH, GroupState, MemberState
from ottla.coordinator.offsets.groups import Commit
from ottla.wire.errors import ErrorCode
from ottla.wire.offsets_records import OffsetCommitValue

K = TypeVar("K")

#: The epoch of a group and of its target before anything was written. The first member raises the group's to 2.
_FIRST_EPOCH: Final = 1
#: The epoch of a target that was deleted.
_NO_TARGET_EPOCH: Final = -1
_NO_NAMES: Final[frozenset[str]] = frozenset()


class Resolved(NamedTuple):
    """The topics that a regular expression matched, in which version of the metadata, and when (ms)."""

    topics: frozenset[str] = frozenset()
    version: int = 0
    timestamp_ms: int = 0


class ConsumerGroup:
    """See the module. Members in the order in which their first record came."""

    #: KIP-848's name for groups of this kind.
    kind: ClassVar[str] = "consumer"
    #: What ListGroups says of every consumer group.
    listed_protocol_type: ClassVar[str] = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = _FIRST_EPOCH
        #: When the target was computed; 0 when that is not known.
        self.target_timestamp_ms = 0
        self.members: dict[str, Member] = {}
        #: Member ids of static members, by instance id.
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Target] = {}
        self.regexes: dict[str, Resolved] = {}
        #: A record of type 4 is in the log, which only Kafka before 4.1 wrote: it is deleted with the next change.
        self.has_partition_metadata = False
        #: How many members subscribe to a topic by name; how many of the regular expressions match it.
        self.by_name: Counter[str] = Counter()
        #: How many members subscribe to just these names. Members that do have one set: it may hold thousands.
        self._by_names: Counter[frozenset[str]] = Counter()
        self._same_names: dict[frozenset[str], frozenset[str]] = {}
        self.by_regex: Counter[str] = Counter()
        self.regex_members: Counter[str] = Counter()
        self.assignors: Counter[str] = Counter()
        #: How many of the members of the classic protocol support an assignor of the client's side.
        self.classic_protocols: Counter[str] = Counter()
        self.classic_members = 0
        #: How many members have all that was theirs in an epoch.
        self._stable_in: Counter[int] = Counter()
        self._partition_epochs: dict[bytes, dict[int, int]] = {}

    # -- questions

    @property
    def state(self) -> GroupState:
        """The group's state, which follows from its epochs and members."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if self._stable_in[self.target_epoch] == len(self.members):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def generation(self) -> int:
        """The group's epoch."""
        return self.epoch

    def knows(self, member_id: str, instance_id: str | None) -> bool:
        """Whether a member has one of these ids."""
        return member_id in self.members or instance_id in self.static_members

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member that has this instance id at present."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: Member) -> Target:
        """The member's part of the target; a static member's is the one of who had its instance id before."""
        if member.instance_id is None:
            return self.target.get(member.member_id, NO_TARGET)
        holder = self.static_members.get(member.instance_id)
        return NO_TARGET if holder is None else self.target.get(holder, NO_TARGET)

    def partition_epoch(self, topic_id: bytes, partition: int) -> int:
        """The epoch of the member that has the partition, or must still give it up; -1 when nobody has it."""
        return self._partition_epochs.get(topic_id, {}).get(partition, -1)

    def topics(self) -> Iterator[str]:
        """The names that the group subscribes to, by name or by a regular expression."""
        yield from self.by_name
        yield from (name for name in self.by_regex if name not in self.by_name)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may read `topic`."""
        return topic in self.by_name or topic in self.by_regex

    def last_resolved(self) -> Resolved | None:
        """Of the regular expressions in use that are resolved, the one of longest ago: a crash may have kept the newer
        results of others only."""
        return next((each for regex, each in self.regexes.items() if regex in self.regex_members), None)

    # -- what offsets ask

    @property
    def state_name(self) -> str:
        """The state, as ListGroups says it."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members and may be deleted."""
        return not self.members

    @property
    def metadata_bytes(self) -> int:
        """None: what its members say is in its records, each of which has found room in the log."""
        return 0

    @property
    def is_forgotten(self) -> bool:
        """Whether nobody would miss the group when its offsets are gone."""
        return not self.members

    def check_commit(self, commit: Commit) -> ErrorCode:
        """NONE, or why this commit is refused.

        A member may be behind: its epoch can rise while its commit is on the way. Then it must have got each of the
        partitions in that epoch or before (KIP-1251).
        """
        if commit.epoch < 0 and not self.members:
            return ErrorCode.NONE
        if commit.transactional and commit.is_anonymous:
            return ErrorCode.NONE
        member = self.members.get(commit.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not (commit.transactional or member.is_classic or commit.knows_member_epochs):
            return ErrorCode.UNSUPPORTED_VERSION
        if commit.epoch == member.member_epoch:
            return ErrorCode.NONE
        stale = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
        if commit.epoch > member.member_epoch:
            return stale
        since = (member.epoch_of(*partition) for partition in commit.partitions)
        return ErrorCode.NONE if all(each is not None and commit.epoch >= each for each in since) else stale

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE, or why this member may not read the offsets. One that says nothing of itself may."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.member_epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_delete(self) -> ErrorCode:
        """NONE: only topics that members subscribe to are protected."""
        return ErrorCode.NONE

    def retention_starts(self) -> Callable[[OffsetCommitValue], int]:
        """Offsets are retained from their commit on; those of topics that members subscribe to do not expire."""
        return lambda value: value.commit_timestamp_ms

    # -- changes, by the records of the log

    def apply_epoch(self, epoch: int, metadata_hash: int) -> None:
        """Type 3."""
        self.epoch, self.metadata_hash = epoch, metadata_hash

    def apply_member(self, member: Member) -> None:
        """Types 5 and 8: the member as it is now."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._forget(before)
            if before.instance_id != member.instance_id:
                self._free_instance_id(before)
        names = self._same_names.setdefault(member.topic_names, member.topic_names)
        if names is not member.topic_names:
            member = replace(member, topic_names=names)
        self._count_names(before, member)
        self.members[member.member_id] = member
        self._note(member)

    def apply_current_tombstone(self, member_id: str) -> None:
        """Type 8 without a value: the member has nothing any more. Its other tombstones follow."""
        before = self.members.get(member_id)
        if before is not None:
            self.apply_member(before.moved(before.state, LEAVE_EPOCH, {}, {}))

    def apply_member_tombstone(self, member_id: str) -> None:
        """Type 5 without a value: the member is gone."""
        member = self.members.get(member_id)
        if member is None:
            return
        require(member.member_epoch == LEAVE_EPOCH, f"member {member_id} is deleted before what it has")
        require(member_id not in self.target, f"member {member_id} is deleted before its part of the target")
        self._forget(member)
        self._count_names(member, None)
        del self.members[member_id]
        self._free_instance_id(member)

    def apply_target(self, member_id: str, target: Target | None) -> None:
        """Type 7; None for a tombstone."""
        if target is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = target

    def apply_target_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """Type 6."""
        self.target_epoch, self.target_timestamp_ms = epoch, timestamp_ms

    def apply_target_tombstone(self) -> None:
        """Type 6 without a value: the group is about to be deleted."""
        require(not self.target, f"the target of group {self.group_id} is deleted before its members' parts")
        self.target_epoch, self.target_timestamp_ms = _NO_TARGET_EPOCH, 0

    def apply_regex(self, regex: str, resolved: Resolved | None) -> None:
        """Type 16; None for a tombstone."""
        before = self.regexes.pop(regex, None)
        if before is not None:
            take_away(self.by_regex, before.topics)
        if resolved is not None:
            self.regexes[regex] = resolved
            self.by_regex.update(resolved.topics)

    def check_deletable(self) -> None:
        """Broken invariant when the group's own tombstone comes before those of what it has."""
        require(not self.members and not self.target, f"group {self.group_id} is deleted before its members")
        require(self.target_epoch == _NO_TARGET_EPOCH, f"group {self.group_id} is deleted before its target")

    # -- counters

    def _count_names(self, before: Member | None, now: Member | None) -> None:
        """A member's names. They can be thousands, and stay the same in most of its changes."""
        old = _NO_NAMES if before is None else before.topic_names
        new = _NO_NAMES if now is None else now.topic_names
        if old is not new:
            take_away(self.by_name, old - new)
            self.by_name.update(new - old)
        if now is not None:
            self._by_names[new] += 1
        if before is not None:
            take_away(self._by_names, (old,))
            if old not in self._by_names:
                del self._same_names[old]

    def _note(self, member: Member) -> None:
        if member.topic_regex:
            self.regex_members[member.topic_regex] += 1
        if member.server_assignor is not None:
            self.assignors[member.server_assignor] += 1
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if member.classic is not None:
            self.classic_members += 1
            self.classic_protocols.update(member.classic_protocols)
        if member.state is MemberState.STABLE:
            self._stable_in[member.member_epoch] += 1
        self._take(member.assigned, member.member_epoch)
        self._take(member.revoking, member.member_epoch)

    def _forget(self, member: Member) -> None:
        if member.topic_regex:
            take_away(self.regex_members, (member.topic_regex,))
        if member.server_assignor is not None:
            take_away(self.assignors, (member.server_assignor,))
        if member.classic is not None:
            self.classic_members -= 1
            take_away(self.classic_protocols, member.classic_protocols)
        if member.state is MemberState.STABLE:
            take_away(self._stable_in, (member.member_epoch,))
        self._release(member.assigned, member.member_epoch)
        self._release(member.revoking, member.member_epoch)

    def _free_instance_id(self, member: Member) -> None:
        """Others may have the instance id that was this member's, unless another has it already.

        Apache Kafka keeps the id of a member that takes another one, and answers UNKNOWN_MEMBER_ID to it for ever.
        """
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _take(self, assigned: Assigned, epoch: int) -> None:
        for topic_id, partitions in assigned.items():
            epochs = self._partition_epochs.get(topic_id)
            if epochs is None:
                self._partition_epochs[topic_id] = dict.fromkeys(partitions, epoch)
                continue
            for partition in partitions:
                before = epochs.get(partition)
                require(
                    before is None or before < epoch,
                    f"group {self.group_id}: partition {topic_id.hex()}-{partition} is given away in epoch {epoch} "
                    f"while a member has it in epoch {before}",
                )
                epochs[partition] = epoch

    def _release(self, assigned: Assigned, epoch: int) -> None:
        """Free what the member had, unless a later owner has it already (a compacted log may have that order)."""
        for topic_id, partitions in assigned.items():
            epochs = self._partition_epochs.get(topic_id)
            if epochs is None:
                continue
            for partition in partitions:
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                del self._partition_epochs[topic_id]


def take_away(counter: Counter[K], names: Iterable[K]) -> None:
    """Take one away for each name, and forget what has come to nothing."""
    for name in names:
        counter[name] -= 1
        if not counter[name]:
            del counter[name]
