"""Anomalies whose cause is known, so that a long run shows only new ones. The list only shrinks.

Each entry recognizes its own case by the events that cause it, and by the transaction that they happen to. An anomaly
of the same name without these events, or of another transaction, is new.
"""

from collections import defaultdict

from ottla.base.types import TopicPartition
from ottla.testing.history.facts import (
    Assigned,
    Began,
    Committed,
    GroupBegan,
    Sent,
)
from sim.check import Anomaly, life_of
from sim.history import Decided, Event, IsMember, Marked, Outdated


def known(anomaly: Anomaly, events: list[Event]) -> str | None:
    """The name of the known cause; None for a new anomaly."""
    if anomaly.name in _OF_A_LATE_MARKER and _transactions_of(anomaly, events) & _marked_late(events):
        # not a bug of a client: in the first protocol all transactions of a producer have one epoch, so a marker of a
        # deposed coordinator ends a part of the next transaction; the second protocol mends it (KIP-890)
        return "late-marker-of-the-first-protocol"
    if anomaly.name == "duplicate" and _read_again(anomaly, events):
        # not a bug of a client: OffsetFetch has no leader epoch, so a coordinator that was deposed and has not heard of
        # it answers from its memory. Its reader goes back to records whose outputs are committed
        return "offsets-of-a-deposed-coordinator"
    if anomaly.name == "commit-regression" and _late_of_one_member(anomaly, events):
        # not a bug of a client: the coordinator of a consumer group takes a commit of an older epoch from a member that
        # has had the partition since then (KIP-1251), so one that was late on its way undoes the member's newer one
        return "late-commit-of-the-same-member"
    return None


def _late_of_one_member(anomaly: Anomaly, events: list[Event]) -> bool:
    """Whether both commits are of one member, in a world whose groups know member epochs, and nobody but this member
    was given the partition from the generation of the late commit on until it came."""
    joins = any(event.what == "joins" and event.text.startswith("consumer") for event in events)
    if not joins or len(anomaly.about) != 2 or len(set(anomaly.about)) != 1:
        return False
    member_id = anomaly.about[0]
    names = {event.who for event in events if event.data == IsMember(member_id)}
    has: dict[tuple[str, TopicPartition], tuple[str, int]] = {}
    for event in events:
        match event.data:
            case GroupBegan(group=group):
                has = {place: owner for place, owner in has.items() if place[0] != group}
            case Assigned(group=group, generation=generation, partitions=partitions):
                new = [(group, tp) for tp in partitions if has.get((group, tp), ("", 0))[1] <= generation]
                has.update((place, (event.who, generation)) for place in new)
            case Committed(group=group, offsets=offsets, generation=generation) if event.data.member_id == member_id:
                for tp, offset in offsets.items():
                    who, since = has.get((group, tp), ("", 0))
                    it = f"{group}: {tp}@{offset} of generation {generation} after "
                    if who in names and since <= generation and anomaly.what.startswith(it):
                        return True
            case _:
                pass
    return False


_OF_A_LATE_MARKER = frozenset(
    {"torn-transaction", "aborted-read", "lost-write", "precommitted-read", "intermediate-read", "commit-regression"}
)


def _marked_late(events: list[Event]) -> frozenset[str]:
    """Transactions of the first protocol that a marker reached before their end, of an end that was decided before."""
    if not any(event.what == "rules" and "transaction_version=0" in event.text for event in events[:1]):
        return frozenset()
    late: set[str] = set()
    open_now: dict[str, str] = {}
    decided: dict[str, list[Decided]] = defaultdict(list)
    undecided: set[str] = set()
    for event in events:
        match event.data:
            case Began(txn=txn, transactional_id=name):
                open_now[name] = txn
                undecided.add(txn)
            case Decided(transactional_id=name) if name in open_now:
                undecided.discard(open_now[name])
                decided[name].append(event.data)
            case Marked(transactional_id=name) as marked if name in open_now:
                # what a coordinator ends by itself, after a time-out, has an epoch that no EndTxn had
                if open_now[name] in undecided and Decided(*marked) in decided[name]:
                    late.add(open_now[name])
    return frozenset(late)


def _transactions_of(anomaly: Anomaly, events: list[Event]) -> set[str]:
    """The transactions that the anomaly is about: named by it, or of one of its records or of what one became."""
    sent = [event.data for event in events if isinstance(event.data, Sent) and event.data.txn is not None]
    named = set(anomaly.about)
    return {
        each.txn
        for each in sent
        if each.txn is not None and (each.txn in named or each.uid in named or each.uid.partition(":")[2] in named)
    }


def _read_again(anomaly: Anomaly, events: list[Event]) -> bool:
    """Whether the input became a second output because who made it was told an outdated offset, at or before it."""
    for event in events:
        if isinstance(event.data, Outdated):
            who, tp, told, committed = event.data
            again = any(f"{tp}@{offset}" in anomaly.about for offset in range(told, committed))
            if again and any(life_of(each) == who for each in anomaly.about if ":" in each):
                return True
    return False
