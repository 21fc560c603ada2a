"""What worlds are worth, in figures: how long they lasted, what was done to them, and what their users did.

Every figure is a whole number that is counted in one world, so the figures of several worlds are added.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from ottla.base.words import counted
from ottla.testing.history.facts import Acknowledged, Assigned, Committed, Ended, Killed, Polled, Sent, Unknown
from sim.history import Event
from sim.network import Cut
from sim.world import Kind, Verdict

#: Connections of which one side learns later than the other that they are broken, or never: half-closed ones.
_HALF_CLOSED = (Cut.CLIENT_FIRST, Cut.SERVER_FIRST, Cut.ANSWERS_LOST, Cut.SILENT)
#: The outcomes of a transaction, as its user was told.
_OUTCOMES = ("committed", "aborted", "unknown")
#: The columns of the table, by figure. Virtual time is kept in milliseconds, and shown in hours.
_COLUMNS = {
    "worlds": "worlds",
    "virtual ms": "virtual hours",
    "clients killed": "clients killed",
    "brokers killed": "brokers killed",
    "power lost": "losses of power",
    "files damaged": "files damaged",
    "cut": "connections cut",
    "half-closed": "of them half-closed",
    "acknowledged": "records acknowledged",
    "read": "records read",
    "committed": "transactions committed",
    "aborted": "aborted",
    "unknown": "unknown",
    "rebalances": "rebalances",
    "commits": "commits of a group",
    "anomalies": "worlds with anomalies",
}


def figures(verdict: Verdict, took_s: float = 0.0) -> Counter[str]:
    """The figures of one world, which took so many seconds of a processor."""
    counts = verdict.counts
    found = Counter(_of_users(verdict.history.events))
    found["worlds"] = 1
    found["virtual ms"] = round(verdict.virtual_s * 1_000)
    found["processor ms"] = round(took_s * 1_000)
    found["brokers killed"] = counts["kill"]
    found["power lost"] = counts["power lost"]
    found["files damaged"] = counts["damage"]
    found["known anomalies"] = len(verdict.known)
    found["cut"] = sum(counts[f"cut: {how.value}"] for how in Cut)
    found["half-closed"] = sum(counts[f"cut: {how.value}"] for how in _HALF_CLOSED)
    found["anomalies"] = int(bool(verdict.anomalies))
    return found


def _of_users(events: Iterable[Event]) -> Counter[str]:
    found: Counter[str] = Counter()
    generations: set[tuple[str, int]] = set()
    for event in events:
        match event.data:
            case Sent():
                found["sent"] += 1
            case Acknowledged():
                found["acknowledged"] += 1
            case Unknown():
                found["failed"] += 1
            case Polled(records=records):
                found["read"] += len(records)
            case Ended(outcome=outcome) if outcome in _OUTCOMES:
                found[outcome] += 1
            case Assigned(group=group, generation=generation):
                generations.add((group, generation))
            case Committed():
                found["commits"] += 1
            case Killed():
                found["clients killed"] += 1
    found["rebalances"] = len(generations)
    return found


def line(found: Mapping[str, int]) -> str:
    """The figures in one line, for who waits."""
    number = Counter(found)
    kills = number["clients killed"] + number["brokers killed"] + number["power lost"]
    ended = ", ".join(f"{number[outcome]:,} {outcome}" for outcome in _OUTCOMES)
    return (
        f"{counted(number['worlds'], 'world')}, {number['virtual ms'] / 3_600_000:.1f} virtual hours, "
        f"{counted(kills, 'kill')}, {counted(number['cut'], 'connection')} cut ({number['half-closed']:,} half-closed)"
        f"; transactions: {ended}; {counted(number['rebalances'], 'rebalance')}, {with_anomalies(number['anomalies'])}"
    )


def with_anomalies(number: int) -> str:
    """How many worlds have anomalies."""
    return f"{counted(number, 'world')} with anomalies"


def table(kinds: Mapping[Kind, Mapping[str, int]]) -> str:
    """The figures as a table in Markdown: a row for each kind of world, and one for all of them."""
    total: Counter[str] = Counter()
    rows = []
    for kind in Kind:
        if kind in kinds:
            total.update(kinds[kind])
            rows.append(_row(f"`{kind.value}`", kinds[kind]))
    head = f"| kind | {' | '.join(_COLUMNS.values())} |"
    return "\n".join([head, "|---" + "|---:" * len(_COLUMNS) + "|", *rows, _row("all", total)])


def _row(title: str, found: Mapping[str, int]) -> str:
    cells = []
    for name in _COLUMNS:
        number = found.get(name, 0)
        cells.append(f"{number / 3_600_000:,.1f}" if name == "virtual ms" else f"{number:,}")
    return f"| {title} | {' | '.join(cells)} |"


def speed(found: Mapping[str, int], took_s: float) -> str:
    """How fast the simulator was: worlds an hour, and virtual seconds a second."""
    took_s = max(took_s, 1e-9)
    virtual_s = found.get("virtual ms", 0) / 1_000
    worlds = found.get("worlds", 0)
    mean = f"{virtual_s / worlds:.0f} virtual seconds a world" if worlds else "no world"
    return (
        f"{worlds / took_s:.1f} worlds a second, {worlds * 3_600 / took_s:,.0f} an hour; "
        f"{virtual_s / took_s:.0f} virtual seconds a second; {mean}"
    )
