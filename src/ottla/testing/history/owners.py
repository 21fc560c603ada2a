"""The checker of assignments: two-owners."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import Evidence
from ottla.testing.history.facts import Assigned, Killed, Revoked


@dataclass(slots=True)
class _Ownership:
    """A member has had a partition from one generation to another, as far as it is known."""

    member: str
    who: str
    first: int
    last: int
    #: What is added to generations (`Evidence.before_generation_0`) since it was given the partition.
    base: int


def two_owners(evidence: Evidence) -> Iterator[Anomaly]:
    """Two members had a partition in the same generation (or member epoch, KIP-848).

    A member has a partition from the generation in which it was given to it up to the one in which it gave it up
    (`Revoked`); both count. In between it had it in each generation in which it was given something else. Where it was
    `lost`, or the member was killed, the generation in which it last had it is not known, and what was told before
    counts.

    Excused: a static member that comes back as another client; clients that do not tell the generation. That a
    member of an older generation goes on for a while, because it has not heard of its expulsion, is no anomaly; its
    commits are refused.
    """
    for (group, tp), found in _ownerships(evidence).items():
        found.sort(key=lambda each: each.first)
        widest = found[0]
        for each in found[1:]:
            if each.first <= widest.last and each.member != widest.member:
                generation = each.first - each.base
                text = f"{group}: {tp} belongs to {widest.who} and to {each.who} in generation {generation}"
                yield Anomaly("two-owners", text, (widest.who, each.who))
            if each.last >= widest.last:
                widest = each


def _ownerships(evidence: Evidence) -> dict[tuple[str, TopicPartition], list[_Ownership]]:
    """Who had which partition, in the order of the history."""
    found: defaultdict[tuple[str, TopicPartition], list[_Ownership]] = defaultdict(list)
    has: defaultdict[str, dict[tuple[str, TopicPartition], _Ownership]] = defaultdict(dict)
    for index, event in enumerate(evidence.events):
        mine = has[event.who]
        match event.fact:
            case Assigned(group, generation, partitions) as told if generation >= 0:
                base = evidence.before_generation_0(group, index)
                at = base + generation
                for tp in partitions:
                    owner = _Ownership(told.instance_id or event.who, event.who, at, at, base)
                    mine[group, tp] = owner
                    found[group, tp].append(owner)
                for (its_group, _), owner in mine.items():
                    if (its_group, owner.base) == (group, base):
                        owner.last = max(owner.last, at)
            case Revoked(group, generation, partitions) as told:
                for tp in partitions:
                    ended = mine.pop((group, tp), None)
                    if ended is not None and not told.lost:
                        ended.last = max(ended.last, ended.base + generation)
            case Killed():
                mine.clear()
            case _:
                pass
    return found
