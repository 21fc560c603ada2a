"""Which events show how an anomaly came about."""

from collections.abc import Iterable, Iterator

from ottla.testing.history.facts import (
    Acknowledged,
    Began,
    Called,
    Committed,
    Drained,
    Ended,
    Ending,
    Event,
    Failed,
    Log,
    OffsetsSent,
    Polled,
    Returned,
    Sent,
    Unknown,
)


def mentions(events: Iterable[Event], about: tuple[str, ...]) -> tuple[Event, ...]:
    """The events that name one of these records, transactions, calls, members or places.

    If there is none: those of the clients that are named.
    """
    wanted = frozenset(about)
    named = tuple(event for event in events if not wanted.isdisjoint(_names(event)))
    return named or tuple(event for event in events if event.who in wanted)


def _names(event: Event) -> Iterator[str]:
    match event.fact:
        case Sent(uid=uid, txn=txn):
            yield uid
            yield txn or uid
        case Acknowledged(uid=name) | Failed(uid=name) | Unknown(uid=name):
            yield name
        case Began(txn=name) | Ending(txn=name) | Ended(txn=name) | OffsetsSent(txn=name):
            yield name
        case Polled(records=records):
            for tp, offset, uid in records:
                yield uid
                yield f"{tp}@{offset}"
        case Committed(member_id=member_id):
            yield member_id
        case Called(call=name) | Returned(call=name):
            yield name
        case Log(tp=tp, records=records):
            for record in records:
                yield record.uid
                yield f"{tp}@{record.offset}"
        case Drained() | _:
            return
