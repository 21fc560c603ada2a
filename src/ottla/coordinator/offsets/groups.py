"""What committed offsets ask of the group that they belong to, whatever kind of group it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.wire.errors import ErrorCode
from ottla.wire.offsets_records import OffsetCommitValue


class Commit(NamedTuple):
    """Who commits offsets, and for which partitions, by topic id and number."""

    member_id: str
    group_instance_id: str | None
    #: The generation of a classic member, or the epoch of a member of a consumer group; -1 for nobody's.
    epoch: int
    partitions: tuple[tuple[bytes, int], ...] = ()
    transactional: bool = False
    #: The client understands the errors of member epochs (OffsetCommit v9+).
    knows_member_epochs: bool = True

    @property
    def is_anonymous(self) -> bool:
        """Nothing is said of a member."""
        return self.epoch < 0 and self.member_id == "" and self.group_instance_id is None


class GroupOfOffsets(Protocol):
    """A group, as its offsets see it."""

    @property
    def group_id(self) -> str: ...

    def check_commit(self, commit: Commit) -> ErrorCode:
        """NONE, or why the whole commit is refused."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE, or why this member may not read the offsets (OffsetFetch v9+)."""
        ...

    def check_offset_delete(self) -> ErrorCode:
        """NONE, or why offsets of this group may not be deleted (OffsetDelete, KIP-496)."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may read `topic`."""
        ...

    def retention_starts(self) -> Callable[[OffsetCommitValue], int] | None:
        """The time from which an offset is retained (ms); None while the group's offsets do not expire."""
        ...
