"""Kinds of groups, and what the shard of a partition asks of each: a third kind finds its place by these protocols.

A *group* says what holds for it, whatever its kind (`AnyGroup`). A *kind* (`Kind`) has the handlers of its requests,
its record types in the log, and its timers. The shard has one table of kinds, and goes through it for everything that
is not a kind's own request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ottla.base.require import require
from ottla.coordinator.decision import NOTHING, Decision, Effect, LogRecord, Reply, Timer
from ottla.coordinator.group.errors import append_error
from ottla.coordinator.offsets.groups import GroupOfOffsets
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_groups import ListedGroup


class AnyGroup(GroupOfOffsets, Protocol):
    """A group of any kind."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> str:
        """The kind's name, as ListGroups says it (KIP-848)."""
        ...

    @property
    def generation(self) -> int:
        """The generation, or the epoch, that the group is in."""
        ...

    @property
    def listed_protocol_type(self) -> str: ...

    @property
    def state_name(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members and may be deleted."""
        ...

    @property
    def metadata_bytes(self) -> int:
        """What its members say of themselves, as far as that is more than its records in the log have."""
        ...

    @property
    def is_forgotten(self) -> bool:
        """Whether nobody would miss the group when its offsets are gone."""
        ...

    def knows(self, member_id: str, instance_id: str | None) -> bool:
        """Whether a member, or an id that was given out, has one of these ids."""
        ...


class Kind(Protocol):
    """One kind of groups in a shard."""

    @property
    def record_types(self) -> frozenset[int]:
        """The versions of the keys of this kind's records."""
        ...

    @property
    def timers(self) -> frozenset[str]:
        """The first parts of this kind's timers' keys."""
        ...

    def apply(self, record: LogRecord, target: AnyGroup | None) -> None:
        """A record of this kind is in the log. `target`: the group that was prepared with it."""
        ...

    def timer(self, key: tuple[str, ...], now_ms: int) -> Decision:
        """One of this kind's timers has fired."""
        ...

    def loaded(self, now_ms: int) -> Iterator[list[Timer]]:
        """The log has been read: timers of all groups of this kind, one group in each step."""
        ...

    def unloaded(self) -> list[Reply]:
        """The shard ends here: answers to all requests that wait in groups of this kind."""
        ...

    def tombstones(self, group: AnyGroup) -> list[LogRecord]:
        """The records that delete a group of this kind, which is empty."""
        ...


class GroupTable(dict[str, AnyGroup]):
    """All groups of a shard, by id; and how many bytes their members say of themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata_bytes = 0
        self._counted: dict[str, int] = {}

    def __setitem__(self, group_id: str, group: AnyGroup) -> None:
        super().__setitem__(group_id, group)
        self._count(group_id, group.metadata_bytes)

    def __delitem__(self, group_id: str) -> None:
        super().__delitem__(group_id)
        self._count(group_id, 0)

    def _count(self, group_id: str, size_bytes: int) -> None:
        self.metadata_bytes += size_bytes - self._counted.pop(group_id, 0)
        if size_bytes:
            self._counted[group_id] = size_bytes


Groups: TypeAlias = GroupTable

#: Makes the Decision that answers the waiting requests when the append failed with an error.
Failure: TypeAlias = Callable[[ErrorCode], Decision]


@dataclass(slots=True)
class _Prepared:
    """A decision whose records are on their way to the log."""

    decision: Decision
    #: The group as it will be, if the decision changes more of it than the record says.
    target: AnyGroup | None
    failure: Failure
    applied: int = 0


class Appending:
    """The decision whose records are on their way to the log; there is one at most."""

    def __init__(self) -> None:
        self._prepared: _Prepared | None = None

    @property
    def is_busy(self) -> bool:
        return self._prepared is not None

    def prepare(self, decision: Decision, target: AnyGroup | None, failure: Failure) -> Decision:
        """The decision, to be carried out before the shard gets its next input."""
        require(self._prepared is None, "the decision before has not been carried out to its end")
        if decision.records:
            self._prepared = _Prepared(decision, target, failure)
        return decision

    def applied(self, record: LogRecord) -> AnyGroup | None:
        """Check that `record` is what was decided. Returns the prepared group that now takes its place, if any."""
        prepared = self._prepared
        if prepared is None:
            return None
        require(record == prepared.decision.records[prepared.applied], "applied is not what was decided")
        prepared.applied += 1
        if prepared.applied == len(prepared.decision.records):
            self._prepared = None
        return prepared.target

    def failed(self, decision: Decision, error: ErrorCode) -> Decision:
        """The records of `decision` could not be appended. Nothing has happened; waiting requests are told why."""
        prepared = self._prepared
        require(prepared is not None and prepared.applied == 0, "no decision is being appended")
        if prepared is None or prepared.decision is not decision:
            require(False, "another decision is being appended")
            return NOTHING
        self._prepared = None
        return prepared.failure(append_error(error))


def answer(token: int, response: object, effects: tuple[Effect, ...] = ()) -> Decision:
    """Nothing but an answer, and at most something to tell."""
    return Decision(replies=(Reply(token, response),), effects=effects)


def listed(groups: Iterable[AnyGroup], states: Iterable[str], types: Iterable[str]) -> tuple[ListedGroup, ...]:
    """The groups in one of `states` and of one of `types`, in upper or lower case. An empty filter accepts all."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    return tuple(
        ListedGroup(group.group_id, group.listed_protocol_type, group.state_name, group.kind)
        for group in groups
        if (not wanted_states or group.state_name.lower() in wanted_states)
        and (not wanted_types or group.kind in wanted_types)
    )
