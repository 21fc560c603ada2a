"""Which events show how an anomaly came about."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.facts import (
    Acknowledged,
    Began,
    Called,
    Committed,
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


class Mentions:
    """Where the records, transactions, calls, members and places of anomalies are named. One walk over the events."""

    def __init__(self, events: Sequence[Event], anomalies: Sequence[Anomaly]) -> None:
        self._events = events
        self._named: defaultdict[str, list[int]] = defaultdict(list)
        self._by: defaultdict[str, list[int]] = defaultdict(list)
        wanted = {name for anomaly in anomalies for name in anomaly.about}
        places = any("@" in name for name in wanted)
        for index, event in enumerate(events) if wanted else ():
            for name in _names(event, places=places):
                if name in wanted:
                    self._named[name].append(index)
            if event.who in wanted:
                self._by[event.who].append(index)

    def of(self, anomaly: Anomaly) -> tuple[Event, ...]:
        """The events that name what the anomaly is about. If there is none: those of the clients that it is about."""
        for where in (self._named, self._by):
            found = sorted({index for name in anomaly.about for index in where.get(name, ())})
            if found:
                return tuple(self._events[index] for index in found)
        return ()


def _names(event: Event, *, places: bool) -> Iterator[str]:
    match event.fact:
        case Sent(uid=uid, txn=txn):
            yield uid
            if txn is not None:
                yield txn
        case Acknowledged(uid=name) | Failed(uid=name) | Unknown(uid=name):
            yield name
        case Began(txn=name) | Ending(txn=name) | Ended(txn=name) | OffsetsSent(txn=name):
            yield name
        case Polled(records=reads):
            for tp, offset, uid in reads:
                yield uid
                if places:
                    yield f"{tp}@{offset}"
        case Committed(member_id=member_id):
            yield member_id
        case Called(call=name) | Returned(call=name):
            yield name
        case Log(tp=tp, records=records):
            for record in records:
                yield record.uid
                if places:
                    yield f"{tp}@{record.offset}"
        case _:
            return
