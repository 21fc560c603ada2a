"""DeleteGroups for one group (KIP-229): tombstones for all its offsets, and with the last of them for the group.

Theory of operation. A group may have more offsets than go into one batch, or into one turn of the event loop. So they
are deleted in parts, each a decision of its own with the next as its `rest`. Nobody sees a group with some of them:
the shard takes no other input before all are gone, and whoever asks meanwhile is told that the group has none. Only a
part that cannot be written, or a kill between two parts, leaves a group with the offsets that are left. Who has asked
then has no success in hand, and asks again.
"""

from __future__ import annotations

from itertools import chain, islice

from ottla.base.limits import MAX_TOMBSTONE_BYTES_PER_BATCH, MAX_TOMBSTONES_PER_BATCH
from ottla.base.types import TopicPartition
from ottla.coordinator.decision import Decision, LogRecord, Reply
from ottla.coordinator.facts import GroupFacts
from ottla.coordinator.group.kinds import Appending, answer
from ottla.coordinator.offsets.commit import offset_tombstones
from ottla.coordinator.offsets.store import OffsetStore
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult


class Deletion:
    """The group of a shard that is being deleted; there is one at most."""

    def __init__(self, store: OffsetStore, appending: Appending) -> None:
        self._store = store
        self._appending = appending
        #: Whose offsets are partly deleted, and hidden.
        self._hidden: str | None = None
        #: The offsets whose tombstones are on their way to the log, of which group, and how many are there.
        self._group_id = ""
        self._part: list[TopicPartition] = []
        self._is_last = True
        self._applied = 0

    def hides(self, group_id: str) -> bool:
        """Whether a part of the group's offsets is deleted, so that nobody may be told of the others."""
        return group_id == self._hidden

    def begin(self, token: int, told: GroupFacts, tombstones: list[LogRecord]) -> Decision:
        """The first part, which is all for most groups. `tombstones` delete the group itself; the last part has them.

        The answer, a DeletableGroupResult, comes with the last part, and so does what is `told`.
        """
        group_id = self._group_id = told.group_id
        self._part, records, self._is_last = _some(group_id, self._store)

        def failure(error: ErrorCode) -> Decision:
            self._hidden, self._part = None, []
            return answer(token, DeletableGroupResult(group_id, error))

        if self._is_last:
            replies = (Reply(token, DeletableGroupResult(group_id)),)
            decision = Decision((*records, *tombstones), replies, facts=(told,))
        else:
            decision = Decision(tuple(records), rest=lambda: self.begin(token, told, tombstones))
        return self._appending.prepare(decision, None, failure)

    def applied(self) -> bool:
        """Whether the record that is in the log now deletes one of these offsets: all of a part go with its first."""
        if not self._part:
            return False
        if not self._applied:
            self._store.apply_tombstones(self._group_id, self._part)
            self._hidden = None if self._is_last else self._group_id
        self._applied += 1
        if self._applied == len(self._part):
            self._part, self._applied = [], 0
        return True


def _some(group_id: str, store: OffsetStore) -> tuple[list[TopicPartition], list[LogRecord], bool]:
    """As many of the group's offsets as go into a batch, those of open transactions last; and whether these are all."""
    committed = store.of_group(group_id)
    pending = (partition for partition in store.pending_partitions(group_id) if partition not in committed)
    partitions = list(islice(chain(committed, pending), MAX_TOMBSTONES_PER_BATCH + 1))
    records: list[LogRecord] = []
    size_bytes = 0
    for record in offset_tombstones(group_id, partitions):
        size_bytes += len(record.key)
        if records and (len(records) == MAX_TOMBSTONES_PER_BATCH or size_bytes > MAX_TOMBSTONE_BYTES_PER_BATCH):
            break
        records.append(record)
    return partitions[: len(records)], records, len(records) == len(partitions)
