"""Why a partition is where it is: what moved, and why; how even and how sticky an assignment is (SPEC A1–A7).

`explain` compares what members had with what they have after a rebalance, or after two of them if the assignor is
cooperative. It knows the rules of the built-in assignors. Of another assignor it says what changed, not why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from ottla.assign.rehearsal import Rehearsal, Step, by_owner
from ottla.assign.types import Cluster, Subscription, member_order
from ottla.base.types import TopicPartition

#: So many partitions are named in a sentence.
_NAMED = 10
_STICKY = frozenset({"sticky", "cooperative-sticky", "uniform (on the broker)"})
_LOOK_AT_RACKS = frozenset({"range", "sticky", "cooperative-sticky"})
_DIVIDE_ANEW = frozenset({"range", "roundrobin", "range (on the broker)"})


class Move(Enum):
    """What happened to a partition."""

    KEPT = "kept"
    #: Nobody had it.
    NEW = "new"
    #: Its owner is not in the group any more, or does not want the topic any more.
    OWNER_GONE = "owner gone"
    NOT_WANTED = "not wanted"
    #: From a member that had more than its share.
    BALANCE = "balance"
    #: To a member in a rack of one of its replicas.
    RACK = "rack"
    #: The assignor divides anew and does not look at who had what.
    DIVIDED_ANEW = "divided anew"
    #: Another assignor gave it to another member; why, that assignor alone knows.
    GIVEN = "given"
    #: Nobody has it now.
    NOBODY = "nobody"


class Placement(NamedTuple):
    """Where one partition is, where it was, and both reasons in words. `moved_because` is "" for one that was kept."""

    partition: TopicPartition
    members: tuple[str, ...]
    before: tuple[str, ...]
    move: Move
    because: str
    moved_because: str
    #: The generation that handed it over, if an earlier one had to take it from its owner first (KIP-429).
    handed_over_in: int | None


class Explanation(NamedTuple):
    """An assignment, explained."""

    strategy: str
    generations: tuple[Step, ...]
    placements: tuple[Placement, ...]
    #: Member → how many partitions it has, and had.
    sizes: dict[str, int]
    sizes_before: dict[str, int]
    #: Whether it is as even as can be with these subscriptions; if not, whether one move makes it more even. Several
    #: moves may do what none of them does alone: a partition to a member that gives another one away.
    is_even: bool
    one_move_helps: bool
    #: How many partitions somebody had; how many of these stayed; and how many could have: an owner is there and wants
    #: them. One that several members had counts once.
    had: int
    kept: int
    could_stay: int
    #: The fewest that had to move so that it is this even; None if members want different topics, or if several members
    #: had the same partition.
    must_move: int | None
    #: Partitions that nobody reads: no member wants their topic, or their assignor has left them out.
    unread: tuple[TopicPartition, ...] = ()

    @property
    def moved(self) -> int:
        """How many partitions that somebody had are with somebody else now, or with nobody."""
        return sum(bool(each.before) and each.move is not Move.KEPT for each in self.placements)

    def evenness(self) -> str:
        """How even it is, as a sentence."""
        if not self.sizes:
            return "The group has no members."
        low, high = min(self.sizes.values()), max(self.sizes.values())
        range_ = f"{low}" if low == high else f"{low} to {high}"
        if self.is_even:
            why = "as even as can be" if high - low <= 1 else "as even as these subscriptions allow"
        elif self.one_move_helps:
            why = "not as even as it could be"
        else:
            why = "no single move makes it more even, several together would"
        return f"Members have {range_} partitions each: {why}."

    def left_out(self) -> str:
        """What nobody reads, as a sentence; "" if there is nothing."""
        if not self.unread:
            return ""
        more = len(self.unread) - _NAMED
        named = ", ".join(str(tp) for tp in self.unread[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"Nobody reads {named}."

    def stickiness(self) -> str:
        """How sticky it is, as a sentence."""
        if not self.had:
            return "Nobody had anything before."
        text = f"{self.kept} of {self.had} partitions stayed where they were ({self.could_stay} could have)."
        if self.must_move is None:
            return text
        needed = self.could_stay - self.kept
        return f"{text} Of these, {needed} moved; the fewest possible so that it is even is {self.must_move}."


def explain(
    strategy: str,
    group: Rehearsal,
    steps: Iterable[Step],
    before: Mapping[str, Iterable[TopicPartition]],
) -> Explanation:
    """The last of `steps` explained. `before` is what members had, also those that have gone since."""
    taken = tuple(steps)
    subscriptions = group.subscriptions
    held = {member: tuple(partitions) for member, partitions in before.items()}
    after = taken[-1].assignment if taken else {}
    reasons = _Reasons(strategy, group.cluster, subscriptions, after, held)
    everything = group.cluster.partitions(topic for said in subscriptions.values() for topic in said.topics)
    owners, owners_before = by_owner(after), by_owner(held)
    handed_over = {
        tp: later.generation_id for later in taken[1:] for given in later.assignment.values() for tp in given
    }
    for tp in (tp for given in (taken[0].assignment.values() if taken else ()) for tp in given):
        handed_over.pop(tp, None)
    placements = [
        reasons.placement(tp, tuple(owners.get(tp, ())), tuple(owners_before.get(tp, ())), handed_over.get(tp))
        for tp in everything
    ]
    existing = frozenset(everything)
    wanted = {member: frozenset(said.topics) for member, said in subscriptions.items()}
    could_stay = {
        member: [tp for tp in tps if tp in existing and tp.topic in wanted.get(member, ())]
        for member, tps in held.items()
    }
    had_one_owner = all(len(members) == 1 for members in owners_before.values())
    return Explanation(
        strategy=strategy,
        generations=taken,
        placements=tuple(placements),
        sizes={member: len(given) for member, given in after.items()},
        sizes_before={member: len(given) for member, given in held.items()},
        is_even=_is_even(after, subscriptions),
        one_move_helps=_one_move_helps(after, subscriptions),
        had=len(owners_before),
        kept=sum(each.move is Move.KEPT for each in placements),
        could_stay=len({tp for tps in could_stay.values() for tp in tps}),
        must_move=_must_move(could_stay, subscriptions, len(everything)) if had_one_owner else None,
        unread=tuple(tp for tp in group.cluster.partitions(group.cluster.topics) if tp not in owners),
    )


def _one_move_helps(after: Mapping[str, tuple[TopicPartition, ...]], subscriptions: Mapping[str, Subscription]) -> bool:
    """Whether a partition could go to a member that wants it and has at least two less than its owner."""
    fewest: dict[str, int] = {}
    for member, said in subscriptions.items():
        for topic in said.topics:
            fewest[topic] = min(fewest.get(topic, len(after[member])), len(after[member]))
    return any(len(given) > fewest[tp.topic] + 1 for given in after.values() for tp in given)


def _is_even(after: Mapping[str, tuple[TopicPartition, ...]], subscriptions: Mapping[str, Subscription]) -> bool:
    """Whether no chain of moves leads from a member to one with at least two less.

    That is as even as can be: what could be more even always differs from it by such a chain.
    """
    holders: dict[str, list[str]] = {}
    for member, given in after.items():
        for topic in {tp.topic for tp in given}:
            holders.setdefault(topic, []).append(member)
    seen: set[str] = set()
    for last in sorted(subscriptions, key=lambda member: len(after[member])):
        # those from whom a chain leads to `last`, and to nobody who has less
        before = [] if last in seen else [last]
        seen.update(before)
        for member in before:  # which grows
            if len(after[member]) > len(after[last]) + 1:
                return False
            for topic in subscriptions[member].topics:
                more = [each for each in holders.pop(topic, ()) if each not in seen]
                seen.update(more)
                before += more
    return True


def _must_move(
    could_stay: Mapping[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription], partitions: int
) -> int | None:
    """The fewest moves of partitions that could stay, if all members want the same topics."""
    if len({frozenset(said.topics) for said in subscriptions.values()}) != 1:
        return None
    share, extras = divmod(partitions, len(subscriptions))
    # those that have most may have one more
    sizes = sorted((len(could_stay.get(member, ())) for member in subscriptions), reverse=True)
    return sum(max(0, size - share - (place < extras)) for place, size in enumerate(sizes))


class _Reasons:
    """The reasons in words, by the rules of each strategy."""

    def __init__(
        self,
        strategy: str,
        cluster: Cluster,
        subscriptions: Mapping[str, Subscription],
        after: Mapping[str, tuple[TopicPartition, ...]],
        before: Mapping[str, tuple[TopicPartition, ...]],
    ) -> None:
        self._strategy = strategy
        self._subscriptions = subscriptions
        self._after, self._before = after, before
        self._racks = {
            TopicPartition(topic, info.partition): info.replica_racks
            for topic, infos in cluster.topics.items()
            for info in infos
        }
        self._served = sorted(subscriptions, key=lambda member: member_order(member, subscriptions[member]))
        self._counts = {topic: len(infos) for topic, infos in cluster.topics.items()}
        in_circle = cluster.partitions(topic for said in subscriptions.values() for topic in said.topics)
        self._turn = {tp: number for number, tp in enumerate(in_circle, 1)}
        self._why: dict[str, Callable[[TopicPartition, str], str]] = {
            "range": self._by_range,
            "range (on the broker)": self._by_range,
            "roundrobin": self._by_round_robin,
            "sticky": self._by_stickiness,
            "cooperative-sticky": self._by_stickiness,
            "uniform (on the broker)": self._by_stickiness,
        }

    def placement(
        self, tp: TopicPartition, members: tuple[str, ...], before: tuple[str, ...], handed_over_in: int | None
    ) -> Placement:
        """One partition explained."""
        move, moved = self._moved(tp, members, before)
        if not members:
            because = "nobody has it"
        elif len(members) > 1:
            because = f"{self._strategy} gives it to {len(members)} members"
        else:
            why = self._why.get(self._strategy)
            because = why(tp, members[0]) if why else f"{self._strategy} chose {members[0]}"
        if handed_over_in is not None and moved:
            moved += f"; {' and '.join(before)} gave it up first, and generation {handed_over_in} handed it over"
        return Placement(tp, members, before, move, because, moved, handed_over_in)

    # why it moved

    def _moved(self, tp: TopicPartition, members: tuple[str, ...], before: tuple[str, ...]) -> tuple[Move, str]:
        if not members:
            return Move.NOBODY, f"{before[0]} had it" if before else ""
        if not before:
            return Move.NEW, "nobody had it"
        if set(members) & set(before):
            return Move.KEPT, ""
        old, new = before[0], members[0]
        if old not in self._subscriptions:
            return Move.OWNER_GONE, f"{old} had it and is not in the group any more"
        if tp.topic not in self._subscriptions[old].topics:
            return Move.NOT_WANTED, f"{old} had it and does not want {tp.topic} any more"
        if self._strategy in _STICKY and self._is_near(tp, new) and not self._is_near(tp, old):
            return Move.RACK, f"{old} had it and has no replica of it in its rack, {new} has"
        if self._strategy in _STICKY:
            return Move.BALANCE, self._made_even(old, new)
        if self._strategy in _DIVIDE_ANEW:
            return Move.DIVIDED_ANEW, f"{old} had it, but {self._strategy} does not look at who had what"
        return Move.GIVEN, f"{old} had it, and {self._strategy} gave it to {', '.join(members)}"

    def _made_even(self, old: str, new: str) -> str:
        had, has = self._before[old], self._after[old]
        kept = len(set(had) & set(has))
        if kept == len(has):
            return f"{old} had {len(had)} partitions and keeps {kept}, its share"
        wants = self._subscriptions[new].topics
        is_why = set(wants) < set(self._subscriptions[old].topics)
        why = f"{new} wants {', '.join(sorted(wants))} only" if is_why else "so all have their share"
        return f"{old} had {len(had)} partitions, keeps {kept} of them and gets {len(has) - kept} others: {why}"

    def _is_near(self, tp: TopicPartition, member: str) -> bool:
        """Whether the member is in a rack of one of its replicas, and the assignor looks at that."""
        if self._strategy not in _LOOK_AT_RACKS:
            return False
        rack = self._subscriptions[member].rack_id
        return bool(rack) and rack in self._racks.get(tp, ())

    # why it is there

    def _wanting(self, topic: str) -> list[str]:
        return [member for member in self._served if topic in self._subscriptions[member].topics]

    def _by_range(self, tp: TopicPartition, member: str) -> str:
        wanting, count = self._wanting(tp.topic), self._counts[tp.topic]
        share, extras = divmod(count, len(wanting))
        place = wanting.index(member) + 1
        size = sum(other.topic == tp.topic for other in self._after[member])
        text = f"{tp.topic} has {count} partitions for {len(wanting)} members: {share} each"
        text += f", one more for the first {extras}" if extras else ""
        near = ", and it is in its rack" if self._is_near(tp, member) else ""
        return f"{text}; {member} is number {place} and has {size}{near}"

    def _by_round_robin(self, tp: TopicPartition, member: str) -> str:
        passed = [other for other in self._served if tp.topic not in self._subscriptions[other].topics]
        text = f"number {self._turn[tp]} of the partitions in order, dealt in a circle of {len(self._served)}"
        return f"{text}, which passes over {', '.join(passed)} (not subscribed)" if passed else text

    def _by_stickiness(self, tp: TopicPartition, member: str) -> str:
        size = len(self._after[member])
        near = ", and it is in its rack" if self._is_near(tp, member) else ""
        if tp in self._before.get(member, ()):
            return f"{member} had it and has room for it (it has {size} now){near}"
        most = max(len(self._after[other]) for other in self._wanting(tp.topic))
        return f"{member} had room for it: it has {size} now, members that want {tp.topic} have up to {most}{near}"
