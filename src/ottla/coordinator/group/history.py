"""The history of groups: facts, as decisions tell them, become events that people and programs can read.

Theory of operation. `History` follows each group from the beginning of a rebalance to its end, and knows nothing of a
group that is at rest. An event is a flat object of JSON; docs/group-events.md describes it, and `VERSION` rises when a
reader of an older version would misread it. Finding what a rebalance moved can be long work in a large group, so it is
done step by step when the event is written (`Event.write`), and not when the group is stable.

Every text and every list in an event has a limit, and an event that was cut says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from ottla.base.errors import CorruptDataError
from ottla.base.limits import MAX_EVENT_ITEMS, MAX_EVENT_TEXT
from ottla.base.types import TopicPartition
from ottla.coordinator.facts import (
    Began,
    Converted,
    Deleted,
    Emptied,
    Fact,
    Gave,
    Gone,
    GroupFacts,
    Joined,
    Lacks,
    LacksNothing,
    Owned,
    Settled,
    Who,
    Why,
)
from ottla.coordinator.facts import Waits as JoinedAndWaits
from ottla.coordinator.group.waits import Waited, Waits
from ottla.wire.consumer_protocol import decode_assignment

#: The version of the events' schema.
VERSION: Final = 1

#: Partitions that one step of `Event.write` compares and sorts: about a millisecond.
_PARTITIONS_A_STEP: Final = 500

#: The kind of groups of KIP-848, in which members wait for each other's partitions.
_CONSUMER: Final = "consumer"

#: The name of the topic that has this id, or None.
TopicName: TypeAlias = Callable[[bytes], "str | None"]

Json: TypeAlias = "str | int | bool | list[dict[str, str | int | list[str] | None]] | None"


class Moves(NamedTuple):
    """Who had what before a rebalance and after it, as the facts said."""

    before: Mapping[str, Owned]
    after: Mapping[str, Owned]


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its key, when it happened (wall clock, ms), and its fields."""

    group_id: str
    time_ms: int
    fields: Mapping[str, Json]
    moves: Moves | None = None
    #: Who waited for whom, where that is written with the moves.
    waited: Waited | None = None

    @property
    def weight(self) -> int:
        """How many things the event holds on to."""
        moves = 0 if self.moves is None else len(self.moves.before) + len(self.moves.after)
        return 1 + moves + (0 if self.waited is None else self.waited.weight)

    def write(self, topic_name: TopicName) -> Generator[None, None, bytes]:
        """The event as JSON. A step looks at one member, or some partitions; the generator returns the event."""
        fields = dict(self.fields)
        if self.moves is not None:
            fields |= yield from _moved(self.moves, topic_name)
        if self.waited is not None:
            fields |= yield from _waited(self.waited)
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class _Made(NamedTuple):
    """What becomes an event: its name, its own fields, and what is written into it step by step."""

    name: str
    fields: Mapping[str, Json]
    moves: Moves | None = None
    waited: Waited | None = None


@dataclass(slots=True)
class _Rebalance:
    """A rebalance that goes on. Times on the monotonic clock, ms."""

    reason: str
    began_ms: int
    before: Mapping[str, Owned]
    #: When each member of a classic group joined it last, and waits since.
    joined_ms: dict[str, int] = field(default_factory=dict)
    first_join_ms: int | None = None
    #: Who waits for whom in a consumer group.
    waits: Waits = field(default_factory=Waits)


class History:
    """See the module. `take` is given facts in the order in which they came true."""

    def __init__(self) -> None:
        self._rebalances: dict[str, _Rebalance] = {}

    def take(self, told: GroupFacts, now_ms: int, monotonic_ms: int) -> Iterator[Event]:
        """The events that follow from facts. `now_ms` is the wall clock; durations are on the monotonic one."""
        for fact in told.facts:
            event = self._event(told, fact, monotonic_ms)
            if event is not None:
                name, fields, moves, waited = event
                head: dict[str, Json] = {
                    "version": VERSION,
                    "event": name,
                    "group": _text(told.group_id),
                    "kind": told.kind,
                    "time_ms": now_ms,
                    "generation": told.generation,
                }
                yield Event(told.group_id, now_ms, {**head, **fields}, moves, waited)

    def _event(self, told: GroupFacts, fact: Fact, at_ms: int) -> _Made | None:
        match fact:
            case Joined(who, replaces):
                self._joined(told, at_ms)
                return _Made("member-joined", {**_named(who), "replaces": _text(replaces)})
            case Gone(who, why, text):
                if told.group_id in self._rebalances:
                    self._rebalances[told.group_id].waits.gone(who.member_id)
                name = "member-left" if why is Why.LEFT else "member-expelled"
                return _Made(name, {**_named(who), "why": why.value, "reason": _text(text)})
            case JoinedAndWaits() | Lacks() | LacksNothing() | Gave():
                self._waits(told.group_id, fact, at_ms)
                return None
            case Began():
                return self._began(told, fact, at_ms)
            case Settled():
                return self._settled(told, fact, at_ms)
            case Emptied(generation):
                self._rebalances.pop(told.group_id, None)
                return _Made("group-emptied", {"generation": generation})
            case Converted(kind):
                return _Made("group-converted", {"kind": kind})
            case Deleted():
                self._rebalances.pop(told.group_id, None)
                return _Made("group-deleted", {})

    def _joined(self, told: GroupFacts, at_ms: int) -> None:
        """A consumer group has no JoinGroup: its first heartbeat is what a member joins with."""
        rebalance = self._rebalances.get(told.group_id)
        if rebalance is not None and told.kind == _CONSUMER and rebalance.first_join_ms is None:
            rebalance.first_join_ms = at_ms

    def _waits(self, group_id: str, fact: JoinedAndWaits | Lacks | LacksNothing | Gave, at_ms: int) -> None:
        rebalance = self._rebalances.get(group_id)
        if rebalance is None:
            return
        match fact:
            case JoinedAndWaits(member_id):
                rebalance.joined_ms[member_id] = at_ms
                if rebalance.first_join_ms is None:
                    rebalance.first_join_ms = at_ms
            case Lacks(member_id, wanted, has):
                rebalance.waits.lacks(member_id, wanted, has, at_ms)
            case LacksNothing(member_id):
                rebalance.waits.lacks_nothing(member_id, at_ms)
            case Gave(member_id, partitions):
                rebalance.waits.gave(member_id, partitions)

    def _began(self, told: GroupFacts, fact: Began, at_ms: int) -> _Made | None:
        """A group that was at rest begins anew, whatever is remembered: its coordinator may have been another one."""
        if fact.before is None and told.group_id in self._rebalances:
            return None
        self._rebalances[told.group_id] = _Rebalance(fact.reason, at_ms, fact.before or {})
        if any(isinstance(each, Joined) for each in told.facts):
            self._joined(told, at_ms)
        return _Made("rebalance-started", {"reason": _text(fact.reason)})

    def _settled(self, told: GroupFacts, fact: Settled, at_ms: int) -> _Made | None:
        rebalance = self._rebalances.pop(told.group_id, None)
        if rebalance is None:
            return None
        waited = {member_id: at_ms - since_ms for member_id, since_ms in rebalance.joined_ms.items()}
        longest = nlargest(MAX_EVENT_ITEMS, waited.items(), key=lambda each: each[1])
        first = rebalance.first_join_ms
        if first is None and told.kind == _CONSUMER:
            first = rebalance.began_ms  # nobody has joined: another change began it
        return _Made(
            "rebalance-completed",
            {
                "generation": fact.generation,
                "reason": _text(rebalance.reason),
                "protocol": _text(fact.protocol),
                "members": fact.members,
                "duration_ms": at_ms - rebalance.began_ms,
                "first_join_to_stable_ms": None if first is None else at_ms - first,
                "waited": [{"member_id": _text(member_id), "ms": ms} for member_id, ms in longest],
                "waited_count": len(waited),
            },
            None if fact.after is None else Moves(rebalance.before, fact.after),
            rebalance.waits.ended(at_ms) if told.kind == _CONSUMER else None,
        )


def _waited(waited: Waited) -> Generator[None, None, dict[str, Json]]:
    """Who waited for whom, in steps."""
    longest = yield from waited.longest()
    return {
        "waited": [
            {
                "member_id": _text(each.member_id),
                "ms": each.ms,
                "for": [_text(name) or "" for name in each.whom],
                "for_count": each.whom_count,
            }
            for each in longest
        ],
        "waited_count": len(waited.members),
    }


def _named(who: Who) -> dict[str, Json]:
    return {
        "member_id": _text(who.member_id),
        "instance_id": _text(who.instance_id),
        "client_id": _text(who.client_id),
        "client_host": _text(who.client_host),
    }


def _text(text: str | None) -> str | None:
    """A text of a client, which may be long."""
    return text if text is None or len(text) <= MAX_EVENT_TEXT else text[: MAX_EVENT_TEXT - 1] + "…"


def _moved(moves: Moves, topic_name: TopicName) -> Generator[None, None, dict[str, Json]]:
    """Which partitions have another reader, in steps. Members whose part is the same are not looked into."""
    before, after = moves
    owners: dict[TopicPartition, list[str | None]] = {}
    readable = True
    for member_id in {**before, **after}:
        had, has = before.get(member_id, b""), after.get(member_id, b"")
        if had == has:
            continue
        try:
            for side, owned in enumerate((had, has)):
                for number, partition in enumerate(_partitions(owned, topic_name)):
                    if number and number % _PARTITIONS_A_STEP == 0:
                        yield
                    owners.setdefault(partition, [None, None])[side] = member_id
        except CorruptDataError:
            readable = False
        yield
    if not readable:
        return {"moved": None, "moved_count": None}
    first: list[TopicPartition] = []
    count, every = 0, iter(owners.items())
    while some := list(islice(every, _PARTITIONS_A_STEP)):
        moved = [partition for partition, (had_by, has_by) in some if had_by != has_by]
        count += len(moved)
        first = nsmallest(MAX_EVENT_ITEMS, [*first, *moved])
        yield
    listed: list[dict[str, str | int | list[str] | None]] = [
        {"topic": each.topic, "partition": each.partition, "from": _text(owners[each][0]), "to": _text(owners[each][1])}
        for each in first
    ]
    return {"moved": listed, "moved_count": count}


def _partitions(owned: Owned, topic_name: TopicName) -> Iterator[TopicPartition]:
    """The partitions in a member's part. A topic that is gone has its id in place of its name."""
    if isinstance(owned, bytes):
        for each in decode_assignment(owned).assigned_partitions:
            yield from (TopicPartition(each.topic, number) for number in each.partitions)
        return
    for topic_id, numbers in owned.items():
        name = topic_name(topic_id) or topic_id.hex()
        yield from (TopicPartition(name, number) for number in numbers)
