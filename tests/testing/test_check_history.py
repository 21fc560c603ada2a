"""Every checker is shown a history that it must not let pass, and the same one without the fault, which it must."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.base.types import TopicPartition
from ottla.testing import History, check_history
from ottla.testing.history import ANOMALIES, Event, HistoryError
from ottla.testing.history.facts import Acknowledged, Sent

TP = TopicPartition("t", 0)


def _written(*log: str) -> History:
    """a, b and c are acknowledged; the log holds these."""
    history = History()
    writer = history.producer("p")
    for offset, uid in enumerate("abc"):
        writer.sent(uid)
        writer.acknowledged(uid, TP, offset)
    history.log(TP, enumerate(log))
    return history


def test_v4_a_history_without_a_fault_has_no_anomaly() -> None:
    assert check_history(_written("a", "b", "c")) == []


def test_an_anomaly_says_what_is_wrong_and_shows_the_events() -> None:
    history = _written("a", "b")
    (anomaly,) = check_history(history)
    assert str(anomaly) == "lost-write: c was acknowledged at t-0@2, but nothing is there"
    assert anomaly.about == ("c", "p")
    assert anomaly.events == history.events[4:6]


def test_what_is_ignored_is_not_told() -> None:
    assert check_history(_written("a", "b"), ignore=["lost-write"]) == []
    with pytest.raises(ValueError, match="ignore has 'lost-writes', which is no anomaly; there are lost-write, "):
        check_history(History(), ignore=["lost-writes"])


@pytest.mark.parametrize("given", ["lost-write", None, 7])
def test_what_is_no_list_of_names_to_ignore_is_told(given: Any) -> None:
    told = rf"ignore has to be a list of names, such as \['lost-write'\], not {given!r}"
    with pytest.raises(ValueError, match=told):
        check_history(History(), ignore=given)


def test_a_second_log_of_a_partition_is_refused_if_it_is_another_one() -> None:
    history = _written("a", "b")
    history.log(TP, [(0, "a"), (1, "b")])
    told = r"a second log of t-0, which differs from the first: "
    with pytest.raises(HistoryError, match=f"^{told}"):
        history.log(TP, [(0, "a"), (1, "b"), (2, "c")])
    other = _written("a", "b", "c").events[-1]
    again = History(events=history.events)
    with pytest.raises(HistoryError, match=told):
        again.add(other.who, other.fact)
    with pytest.raises(HistoryError, match=rf"event 9 of the history: {told}"):
        check_history([*history.events, other])
    assert len(check_history(history)) == 1


@pytest.mark.parametrize("given", [None, Path("h.jsonl"), "h.jsonl", b"", 7, {}])
def test_what_is_no_history_is_told(given: Any) -> None:
    with pytest.raises(HistoryError, match=r"is no history: .* History\.read\(path\)"):
        check_history(given)


@pytest.mark.parametrize("event", [1, "sent", Sent("a"), Event(0.0, "p", "sent a")])  # type: ignore[arg-type]
def test_an_event_that_is_none_is_told_with_its_number(event: Any) -> None:
    with pytest.raises(HistoryError, match=r"event 2 of the history is .*: it has to be an Event with a fact"):
        check_history([Event(0.0, "p", Sent("a")), event])
    with pytest.raises(HistoryError, match="event 1 of the history"):
        check_history(History(events=[event]))


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (Event(0.0, 5, Sent("a")), "'who' of an event has to be a text, not 5"),  # type: ignore[arg-type]
        (Event("now", "p", Sent("a")), "'at_s' of an event has to be a number, not 'now'"),  # type: ignore[arg-type]
        (Event(0.0, "p", Sent(5)), "'uid' of Sent has to be a text, not 5"),  # type: ignore[arg-type]
        (Event(0.0, "p", Acknowledged("a", None, 0)), "'tp' of Acknowledged has to be"),  # type: ignore[arg-type]
    ],
)
def test_an_event_with_a_wrong_field_is_told(event: Event, told: str) -> None:
    """Some of them the checkers would pass over, and find nothing wrong."""
    with pytest.raises(HistoryError, match=f"event 1 of the history: {told}"):
        check_history([event])
    with pytest.raises(HistoryError, match=f"event 1 of the history: {told}"):
        History(events=[event])
    with pytest.raises(HistoryError, match=told):
        History().add(event.who, event.fact, event.at_s)


@pytest.mark.parametrize(
    ("note", "told"),
    [
        (lambda history: history.log(TP, [5]), r"record 1 is 5: it has to be \(offset, uid, or a LogRecord\)"),
        (lambda history: history.log(TP, [(0, "a"), (1,)]), r"record 2 is \(1,\)"),
        (lambda history: history.log(TP, [("x", "a"), (1, "b")]), "'records' of Log has to be a list of"),
        (lambda history: history.log(TP, 5), "records have to be a list, not 5"),
        (lambda history: history.consumer("c").polled([7]), r"record 1 is 7: it has to be \(partition, offset, uid\)"),
        (lambda history: history.positions("g", [1]), "offsets have to be a mapping"),
        (lambda history: history.consumer("c", group="g").committed(7), "offsets have to be a mapping of"),
        (lambda history: history.consumer("c", group="g").assigned(7), "partitions have to be a list, not 7"),
        (lambda history: history.drained("g", TP), "'partitions' of Drained has to be a list of"),
        (lambda history: history.log(TP, [(-5, "a")]), "'records' of Log have an offset of -5: offsets are 0 or more"),
        (lambda history: history.log(TP, [], high_watermark=-3), "'high_watermark' of Log is -3: offsets are 0"),
        (lambda history: history.log(TP, [], last_stable_offset=-1), "'last_stable_offset' of Log is -1: offsets are"),
        (lambda history: history.log(TP, [], start_offset=-1), "'start_offset' of Log is -1: offsets are 0 or more"),
        (
            lambda history: history.log(TP, [(0, "a")], high_watermark=1, last_stable_offset=2),
            "'last_stable_offset' of Log is 2, which is above its 'high_watermark', 1: were the two taken for each",
        ),
        (
            lambda history: history.consumer("c").polled([(TP, 0, "a"), (TP, -1, "b")]),
            "'records' of Polled have an offset of -1: offsets are 0 or more",
        ),
        (
            lambda history: history.producer("p").acknowledged("a", TP, -2),
            "'offset' of Acknowledged is -2: offsets are 0 or more, and -1 is one that is not known",
        ),
        (
            lambda history: history.consumer("c").sought({TP: -1001}),
            "'positions' of Sought have an offset of -1001: offsets are 0 or more, and -1 is one that is not known",
        ),
        (lambda history: History(events=cast("Any", 5)), "events have to be a list, not 5"),
        (lambda history: History(cast("Any", 5)), "clock has to be a function that gives seconds, such as time.monoto"),
    ],
)
def test_a_note_with_a_wrong_argument_is_told(note: Callable[[History], None], told: str) -> None:
    with pytest.raises(HistoryError, match=told):
        note(History())


def test_offsets_that_nobody_knows_are_taken() -> None:
    history = History()
    history.producer("p").acknowledged("a", TP)
    history.consumer("c").sought({TP: -1})
    history.log(TP, [(0, "a")], high_watermark=1, last_stable_offset=1)
    assert len(history.events) == 3


def test_no_history_at_all_has_no_anomaly() -> None:
    assert check_history(History()) == check_history([]) == []


def test_each_anomaly_has_a_history_that_shows_it() -> None:
    """The stories beside this file: at least one with the fault for each name, and all of them fifty at the least."""
    texts = [path.read_text() for path in sorted(Path(__file__).parent.glob("test_check_history_*.py"))]
    expected = [found for text in texts for found in re.findall(r'^ {8}"([a-z -]+)",$', text, re.MULTILINE)]
    assert {name for names in expected for name in names.split()} == set(ANOMALIES)
    assert len(expected) >= 50
