"""The checker of assignments: two-owners."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import NEVER, Evidence
from ottla.testing.history.facts import Assigned, Began, Called, Committed, Killed, OffsetsSent, Revoked


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
    (`Revoked`); both count. In between it had it in each generation in which it was given something else, or in which
    a commit of it was accepted. Where it was `lost`, or the member was killed, the generation in which it last had it
    is not known, and what was told before counts.

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
    proofs = _proofs(evidence)
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
                _keeps(mine, group, base, generation)
            case Revoked(group, generation, partitions) as told:
                for tp in partitions:
                    ended = mine.pop((group, tp), None)
                    if ended is not None and not told.lost:
                        ended.last = max(ended.last, ended.base + generation)
            case Killed():
                mine.clear()
            case _ if index in proofs:
                proof = proofs[index]
                _keeps(has[proof.who], proof.group, proof.base, proof.generation)
            case _:
                pass
    return found


def _keeps(mine: dict[tuple[str, TopicPartition], _Ownership], group: str, base: int, generation: int) -> None:
    """A member of this generation has all that it was given and has not given up."""
    for (its_group, _), owner in mine.items():
        if (its_group, owner.base) == (group, base):
            owner.last = max(owner.last, base + generation)


class _Proof(NamedTuple):
    """A commit of a member was accepted: it is in this generation, or was when it had committed."""

    who: str
    group: str
    base: int
    generation: int


def _proofs(evidence: Evidence) -> dict[int, _Proof]:
    """Where in the history which member's generation was proved: by a commit, or by a transaction's offsets.

    Not by one that began before the group began again: its generation is of the time before. The id of a member that
    has sent offsets to a transaction says which client it is where that client has noted a commit of its own.
    """
    found: dict[int, _Proof] = {}
    began: dict[tuple[str, str], int] = {}
    names = {
        (event.fact.group, event.fact.member_id): event.who
        for event in evidence.events
        if isinstance(event.fact, Committed) and event.fact.member_id and event.who in evidence.group_of
    }
    for index, event in enumerate(evidence.events):
        match event.fact:
            case Called(call=call):
                began["call", call] = index
                continue
            case Began(txn=txn):
                began["txn", txn] = index
                continue
            case Committed(group=group, generation=generation, outcome="committed", call=call):
                since = index if call is None else began.get(("call", call), index)
                who = event.who
            case OffsetsSent(group=group, generation=generation, txn=txn) as sent if (
                evidence.outcomes.get(txn) == "committed"
            ):
                since = began.get(("txn", txn), NEVER)
                who = names.get((group, sent.member_id), event.who)
            case _:
                continue
        base = evidence.before_generation_0(group, index)
        if generation >= 0 and since <= index and base == evidence.before_generation_0(group, since):
            found[index] = _Proof(who, group, base, generation)
    return found
