"""What the checkers are told of a world: its facts, its logs in the end, and nothing of what is lost for good."""

from __future__ import annotations

import re

from ottla.base.types import TopicPartition
from ottla.testing.history import ANOMALIES, check_history
from ottla.testing.history.facts import Acknowledged, Drained, Log, Positions, Sent, Unknown
from sim.check import FinalState, LogRecord, Told, life_of, told
from sim.history import Event
from tests.house.tree import ROOT

TP = TopicPartition("t", 0)
_EVENTS = [
    Event(1.0, "world", "rules", "no fact"),
    Event(2.0, "p0.1", "send", "", Sent("a")),
    Event(3.0, "p0.1", "acked", "", Acknowledged("a", TP, 0)),
]


def _told(*, lost: frozenset[str] = frozenset(), open_from: int | None = None) -> list[Told]:
    hanging = {} if open_from is None else {TP: open_from}
    final = FinalState({TP: [LogRecord(4, "b")]}, hanging, {"g": {TP: 1}}, (Drained("g", (TP,)),))
    return list(told(_EVENTS, final, lost, 9.0))


def test_facts_and_the_final_state_are_told() -> None:
    assert _told() == [
        Told(2.0, "p0.1", Sent("a")),
        Told(3.0, "p0.1", Acknowledged("a", TP, 0)),
        Told(9.0, "final state", Log(TP, (LogRecord(4, "b"),))),
        Told(9.0, "final state", Positions("g", {TP: 1})),
        Told(9.0, "final state", Drained("g", (TP,))),
    ]


def test_of_a_record_that_is_lost_for_good_nothing_is_expected() -> None:
    assert "lost-write" in {anomaly.name for anomaly in check_history(_told())}
    lost = _told(lost=frozenset({"a"}))
    assert isinstance(lost[1].fact, Unknown)
    assert "lost-write" not in {anomaly.name for anomaly in check_history(lost)}


def test_an_open_transaction_is_a_last_stable_offset_below_the_end() -> None:
    assert "stuck-lso" not in {anomaly.name for anomaly in check_history(_told())}
    for open_from in (2, 4, 7):
        assert "stuck-lso" in {anomaly.name for anomaly in check_history(_told(open_from=open_from))}


def test_the_life_that_sent_a_record_is_in_its_uid() -> None:
    assert life_of("x0.1.2-7:p1.3.1-5") == "x0.1"


def test_each_name_of_an_anomaly_is_in_the_tables_and_no_other() -> None:
    page = (ROOT / "docs" / "simulation.md").read_text()
    rows = page.partition("## What the checkers look for")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`([a-z-]+)`", " ".join(re.findall(r"^\| (`[^|]*) \|", rows, re.MULTILINE))))
    sources = "".join(path.read_text() for path in (ROOT / "sim").rglob("*.py"))
    given = set(re.findall(r'(?:[Aa]nomaly|_broken)\((?:seed, kind, )?"([a-z-]+)"', sources))
    assert given - ANOMALIES.keys() == documented - {"deadlock", "livelock"}  # these are named by their exceptions
