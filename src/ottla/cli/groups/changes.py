"""What has happened to a group between two looks at it. Pure: it is given descriptions and times.

A look shows the state, the members, and what each of them has. From this follows who came and went, when the group was
stable again, which partitions have moved, and which stood still: had no reader, or one that was not allowed to read.

In the classic protocol a broker does not tell who reads what during a rebalance, so there this goes by the assignor.
With an eager one every member gives up everything before it joins again, with cooperative-sticky only what moves. In
the consumer protocol (KIP-848) a partition stands still from when its member has given it up until another one has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.base.words import counted

if TYPE_CHECKING:
    from ottla import TopicPartition
    from ottla.client.admin.types import GroupDescription, MemberDescription

#: In these states nothing moves.
_SETTLED = frozenset({"Stable", "Empty"})
_COOPERATIVE = frozenset({"cooperative-sticky"})


@dataclass(frozen=True, slots=True)
class Move:
    """A partition has another reader. None is nobody."""

    partition: TopicPartition
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"{self.partition} {self.before or '-'} → {self.after or '-'}"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that has happened: `event` says what, `who` to which member; a rebalance has its figures."""

    event: str
    who: str | None = None
    state: str | None = None
    #: How long the group was not stable; None if no look has seen it so.
    took_s: float | None = None
    members: int = 0
    moves: tuple[Move, ...] = ()
    #: Member → for how many seconds it, or one of its partitions, stood still.
    still_s: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        match self.event:
            case "joined" | "left":
                return f"{self.who} {self.event}"
            case "stable":
                return self._stable()
            case "state":
                return f"{self.state}"
            case _:
                return self.event

    def _stable(self) -> str:
        took = "" if self.took_s is None else f" after {self.took_s:.1f} s"
        said = [f"{self.state}{took}, {counted(self.members, 'member')}"]
        if self.moves:
            said.append(
                "moved: " + ", ".join(f"{m.partition} {m.before or '-'} → {m.after or '-'}" for m in self.moves)
            )
        if self.still_s:
            longest = sorted(self.still_s.items(), key=lambda each: (-each[1], each[0]))
            said.append("stood still: " + ", ".join(f"{who} {still_s:.1f} s" for who, still_s in longest))
        return "; ".join(said)


class Changes:
    """Compares each look at a group with those before."""

    def __init__(self) -> None:
        self._looked = False
        self._state: str | None = None
        self._members: dict[str, str] = {}
        #: Who read what at the last look at which the group was stable.
        self._settled: dict[TopicPartition, str] = {}
        #: Since when the group is not stable; since when a partition has no reader; for how long it had none.
        self._since_s: float | None = None
        self._idle_since_s: dict[TopicPartition, float] = {}
        self._idle_s: dict[TopicPartition, float] = {}

    def seen(self, group: GroupDescription | None, at_s: float) -> list[Change]:
        """What has changed; None is a group that does not exist."""
        is_first, self._looked = not self._looked, True
        if group is None:
            return self._absent(is_first=is_first)
        was_there = self._state is not None
        changes = self._people(group) if not is_first else []
        self._members = {member.member_id: name_of(member) for member in group.members}
        owners = {tp: name_of(member) for member in group.members for tp in member.partitions}
        is_settled = group.state in _SETTLED
        if not is_settled and self._since_s is None:
            self._since_s = at_s
        self._count_idle(group, owners, at_s, is_settled=is_settled)
        if is_settled and (self._since_s is not None or owners != self._settled or group.state != self._state):
            changes.append(self._stable(group, owners, at_s, was_there=was_there))
        elif not is_settled and group.state != self._state:
            changes.append(Change("state", state=group.state))
        self._state = group.state
        return changes

    def _absent(self, *, is_first: bool) -> list[Change]:
        was_there = self._state is not None
        self._state, self._since_s = None, None
        for known in (self._members, self._settled, self._idle_since_s, self._idle_s):
            known.clear()
        if is_first:
            return [Change("there is no such group yet")]
        return [Change("the group is gone")] if was_there else []

    def _people(self, group: GroupDescription) -> list[Change]:
        now, known = {member.member_id: name_of(member) for member in group.members}, self._members
        gone = [Change("left", who=known[each]) for each in sorted(known.keys() - now.keys())]
        return gone + [Change("joined", who=now[each]) for each in sorted(now.keys() - known.keys())]

    def _count_idle(
        self, group: GroupDescription, owners: Mapping[TopicPartition, str], at_s: float, *, is_settled: bool
    ) -> None:
        """Since when each partition that had a reader has none. Only the consumer protocol shows that."""
        if group.epoch is None:
            return
        for tp in self._settled.keys() - owners.keys():
            self._idle_since_s.setdefault(tp, at_s)
        for tp in owners.keys() & self._idle_since_s.keys():
            self._idle_s[tp] = self._idle_s.get(tp, 0.0) + at_s - self._idle_since_s.pop(tp)
        if is_settled:
            for tp in list(self._idle_since_s):
                self._idle_s[tp] = self._idle_s.get(tp, 0.0) + at_s - self._idle_since_s.pop(tp)

    def _stable(
        self, group: GroupDescription, owners: dict[TopicPartition, str], at_s: float, *, was_there: bool
    ) -> Change:
        before = self._settled if was_there else owners
        took_s = None if self._since_s is None or not was_there else at_s - self._since_s
        moves = tuple(
            Move(tp, before.get(tp), owners.get(tp))
            for tp in sorted(before.keys() | owners.keys())
            if before.get(tp) != owners.get(tp)
        )
        still_s = self._still(group, owners, moves, took_s)
        self._settled, self._since_s, self._idle_s = owners, None, {}
        return Change("stable", None, group.state, took_s, len(group.members), moves, still_s)

    def _still(
        self,
        group: GroupDescription,
        owners: Mapping[TopicPartition, str],
        moves: tuple[Move, ...],
        took_s: float | None,
    ) -> dict[str, float]:
        if group.epoch is not None:
            found: dict[str, float] = {}
            for tp, idle_s in self._idle_s.items():
                if tp in owners:
                    found[owners[tp]] = max(idle_s, found.get(owners[tp], 0.0))
            return found
        if took_s is None:
            return {}
        moved = {move.partition for move in moves}
        waits = moved if group.protocol in _COOPERATIVE else owners.keys()
        return {who: took_s for tp, who in owners.items() if tp in waits and tp in self._settled}


def name_of(member: MemberDescription) -> str:
    return short_name(member.member_id, member.client_id, member.group_instance_id)


def short_name(member_id: str, client_id: str, instance_id: str | None) -> str:
    """What a person knows a member by: its instance id, or its client id and as much of its id as tells it apart."""
    if instance_id:
        return instance_id
    own = member_id.removeprefix(f"{client_id}-")
    return f"{client_id}-{own[:8]}"
