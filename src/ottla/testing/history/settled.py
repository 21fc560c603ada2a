"""The checker of calls: never-settled."""

from collections import Counter
from collections.abc import Iterator

from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import Evidence
from ottla.testing.history.facts import (
    Acknowledged,
    Called,
    Committed,
    Ended,
    Ending,
    Failed,
    Returned,
    Sent,
    Unknown,
)


def never_settled(evidence: Evidence) -> Iterator[Anomaly]:
    """A record, the end of a transaction, or another call has no outcome, although the history is over.

    "Unknown" is an outcome: it was told. Who asks for an end again waits for another one. Excused: what a client had
    begun before it was killed. Another client may send the record again, and then has an outcome of its own to wait
    for.
    """
    done: Counter[tuple[str, ...]] = Counter()
    ended: dict[str, int] = {}
    for index, event in enumerate(evidence.events):
        match event.fact:
            case Acknowledged(uid=uid) | Failed(uid=uid) | Unknown(uid=uid):
                done["record", uid, event.who] += 1
            case Ended(txn=txn):
                ended[txn] = index
            case Returned(call=call) | Committed(call=str(call)):
                done["call", call] += 1
            case _:
                pass
    begun: Counter[tuple[str, ...]] = Counter()
    told: set[tuple[str, ...]] = set()
    key: tuple[str, ...]
    for index, event in enumerate(evidence.events):
        match event.fact:
            case Sent(uid=name):
                key = ("record", name, event.who)
                begun[key] += 1
            case Ending(txn=name):
                key = ("transaction", name)
                begun[key] = ended.get(name, -1) < index  # an answer from before it is none
            case Called(call=name):
                key = ("call", name)
                begun[key] += 1
            case _:
                continue
        alive = index > evidence.killed.get(event.who, -1)
        if alive and begun[key] > done[key] and key not in told:
            told.add(key)
            yield Anomaly("never-settled", f"the {key[0]} {name} has no outcome", (name, event.who))
