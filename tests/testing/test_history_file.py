"""A history is written by many clients, goes to a file and comes back; what is no history is told in a sentence."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.testing.history import Event, Fact, History, HistoryError, LogRecord, StreamedHistory, facts
from ottla.testing.history.lines import decode, encode

TP = TopicPartition("orders", 0)


def _clock() -> Callable[[], float]:
    ticks = iter(range(1_000_000))
    return lambda: float(next(ticks))


def _example() -> History:
    """One of everything."""
    history = History(_clock())
    writer = history.producer("p")
    writer.began("T1", "p", timeout_s=60.0)
    writer.sent("a", txn="T1")
    writer.acknowledged("a", TP, 0)
    writer.offsets_sent("T1", "g", {TP: 1}, member_id="m", generation=2)
    writer.ending("T1", commit=True)
    writer.ended("T1", "committed")
    writer.sent("b", source="a")
    writer.failed("b", ValueError("no"))
    writer.sent("ü 'c'\n\u2028")
    writer.unknown("ü 'c'\n\u2028", "timeout")
    reader = history.consumer("c", group="g")
    reader.assigned([TP], generation=2, instance_id="i")
    reader.polled([(TP, 0, "a")])
    reader.polled([])
    reader.sought({TP: 0})
    reader.called("commit 1", "commit")
    reader.committed({TP: 1}, member_id="m", generation=2, call="commit 1")
    reader.returned("commit 1", KeyError("x"))
    reader.revoked([TP], lost=True)
    reader.killed()
    history.group_began("g")
    history.deleting("d", TP, 1)
    history.deleted("d", TP, 1)
    history.log(TP, [LogRecord(2, "z", False), (0, "a")], high_watermark=4, last_stable_offset=4)
    history.positions("g", {TP: 1})
    history.drained("g", [TP])
    return history


def test_a_history_comes_back_from_its_file(tmp_path: Path) -> None:
    history, path = _example(), tmp_path / "orders.jsonl"
    history.write(path)
    assert History.read(path).events == history.events
    assert {type(event.fact) for event in history.events} == set(_FACTS), "one of everything"


def test_the_events_are_as_they_were_noted() -> None:
    events = _example().events
    assert [event.at_s for event in events] == [float(at) for at in range(len(events))]
    assert events[1] == Event(1.0, "p", facts.Sent("a", "T1"))
    assert events[6:8] == (
        Event(6.0, "p", facts.Sent("b", source="a")),
        Event(7.0, "p", facts.Failed("b", "ValueError('no')")),
    )
    assert facts.Log(TP, (LogRecord(0, "a"), LogRecord(2, "z", False)), 0, 4, 4) in [event.fact for event in events]


def test_a_uid_of_bytes_is_told_in_a_sentence() -> None:
    events = [Event(0.0, "p", facts.Sent(b"a"))]  # type: ignore[arg-type]
    with pytest.raises(HistoryError, match=r"Sent of 'p' cannot be written: .*A uid is a text: decode the bytes"):
        list(encode(events))
    with pytest.raises(HistoryError, match="event 1 of the history: 'uid' of Sent has to be a text, not b'a'"):
        History(events=events)


_OF_ANOTHER_TYPE: dict[str, Callable[[History], None]] = {
    "'uid' of Sent has to be a text, not b'a'": lambda h: h.producer("p").sent(cast("Any", b"a")),
    "'tp' of Acknowledged has to be a partition": lambda h: h.producer("p").acknowledged("a", cast("Any", "t-0"), 0),
    "'outcome' of Ended has to be one of committed": lambda h: h.producer("p").ended("x", cast("Any", "nonsense")),
    "'partitions' of Assigned has to be a list of": lambda h: h.consumer("c", group="g").assigned(cast("Any", "t")),
    "'offsets' of Committed has to be a list of": lambda h: h.consumer("c", group="g").committed({cast("Any", 5): 5}),
    "'x' is no fact; it is one of Acknowledged, ": lambda h: h.add("p", cast("Any", "x")),
}


@pytest.mark.parametrize("told", _OF_ANOTHER_TYPE)
def test_a_fact_of_another_type_is_refused_when_it_is_noted(told: str, tmp_path: Path) -> None:
    """The checkers would pass it over, and find nothing wrong."""
    with StreamedHistory(tmp_path / "h.jsonl", _clock()) as streamed:
        for history in (History(_clock()), streamed):
            with pytest.raises(HistoryError, match=f"^{re.escape(told)}"):
                _OF_ANOTHER_TYPE[told](history)
            assert history.events == ()


def test_a_text_that_is_no_utf8_comes_back_from_its_file(tmp_path: Path) -> None:
    history, path = History(_clock()), tmp_path / "h.jsonl"
    history.producer("p").sent(b"\xff".decode(errors="surrogateescape"))
    history.write(path)
    assert History.read(path).events == history.events


def test_a_given_time_is_taken() -> None:
    history = History(_clock())
    history.add("p", facts.Sent("a"), at_s=1.5)
    assert history.events == (Event(1.5, "p", facts.Sent("a")),)


def test_threads_write_at_the_same_time_and_the_order_is_that_of_time() -> None:
    history = History(_clock())

    def work(name: str) -> None:
        for at in range(500):
            history.producer(name).sent(f"{name}{at}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.at_s for event in history.events] == [float(at) for at in range(2_000)]


def test_a_consumer_without_a_group_has_no_offsets_to_commit() -> None:
    with pytest.raises(HistoryError, match="c is in no group: give"):
        History().consumer("c").committed({TP: 1})


_FACTS: tuple[type[Fact], ...] = facts.Fact.__args__
_texts = st.text(st.characters(codec="utf-8"), max_size=8)
_partitions = st.builds(TopicPartition, _texts, st.integers(0, 99))
for _type, _strategy in ((TopicPartition, _partitions), (float, st.floats(allow_nan=False, allow_infinity=False))):
    st.register_type_strategy(_type, _strategy)


@given(st.lists(st.builds(Event, st.floats(0, 1e9), _texts, st.one_of(*map(st.from_type, _FACTS)))))
def test_any_history_is_the_same_after_lines(events: list[Event]) -> None:
    assert list(decode(encode(events))) == events


_FIRST, _KILLED = '{"ottla-history": 2}', '{"at_s": 1, "who": "p", "fact": "Killed"}'
_WRONG = {
    "nothing": ([], 'line 1: this is no history: the first line of one is {"ottla-history": 2}. Name a file'),
    "text": (["Dear diary"], "line 1: this is no history"),
    "other JSON": (['{"version": 3}'], "line 1: this is no history"),
    "a newer one": (
        ['{"ottla-history": 3}'],
        "line 1: the history has version 3, and this Ottla reads version 2: read it with the Ottla that wrote it",
    ),
    "an older one": (
        ['{"ottla-history": 1}', _KILLED],
        "line 1: the history has version 1, and this Ottla reads version 2: read it with the Ottla that wrote it",
    ),
    "a number beyond all": (
        [_FIRST, f'{{"at_s": {"9" * 400}, "who": "p", "fact": "Killed"}}'],
        "line 2: 'at_s' of an event has to be a number, not 999",
    ),
    "cut": (
        [_FIRST, '{"at_s": 1, "who": "p", "fa'],
        "line 2: not JSON (column 25: ",
    ),
    "cut between two lines": (
        [_FIRST, _KILLED],
        "line 2: the history breaks off here: the last line of one says how many events it has. The file was",
    ),
    "cut behind the first line": ([_FIRST], "line 1: the history breaks off here"),
    "with a line less": (
        [_FIRST, _KILLED, '{"ottla-history-events": 2}'],
        "line 3: the history had 2 events, and 1 event is in the file: were lines lost, or changed by hand?",
    ),
    "with a line more": (
        [_FIRST, _KILLED, _KILLED, '{"ottla-history-events": 1}'],
        "line 4: the history had 1 event, and 2 events are in the file",
    ),
    "two in one file": (
        [_FIRST, '{"ottla-history-events": 0}', "", _FIRST],
        "line 4: the history has ended before: one file holds one history",
    ),
    "an end that is none": (
        [_FIRST, '{"ottla-history-events": "all"}'],
        "line 2: 'ottla-history-events' of the last line has to be a whole number, not 'all'",
    ),
    "too deep": ([_FIRST, "[" * 100_000], "line 2: not JSON"),
    "a number": ([_FIRST, "7"], "line 2: an event is a JSON object, in braces"),
    "no time": ([_FIRST, '{"who": "p"}'], "line 2: an event has to have 'at_s'"),
    "no time of this world": (
        [_FIRST, '{"at_s": Infinity, "who": "p", "fact": "Killed"}'],
        "line 2: not JSON (Infinity is no number of JSON)",
    ),
    "an unknown fact": (
        [_FIRST, '{"at_s": 1, "who": "p", "fact": "Slept"}'],
        "line 2: 'Slept' is no fact; it is one of Acknowledged, Assigned, ",
    ),
    "a field that is not there": (
        [_FIRST, "", '{"at_s": 1, "who": "p", "fact": "Sent"}'],
        "line 3: Sent has to have 'uid'",
    ),
    "a field too many": (
        [_FIRST, '{"at_s": 1, "who": "p", "fact": "Sent", "uid": "a", "key": "b"}'],
        "line 2: Sent has no 'key'; it has uid, txn, producer, source",
    ),
    "a number for a text": (
        [_FIRST, '{"at_s": 1, "who": "p", "fact": "Sent", "uid": 5}'],
        "line 2: 'uid' of Sent has to be a text, not 5",
    ),
    "a text for an offset": (
        [_FIRST, '{"at_s": 1, "who": "p", "fact": "Acknowledged", "uid": "a", "tp": ["t", 0], "offset": "x"}'],
        "line 2: 'offset' of Acknowledged has to be a whole number, not 'x'",
    ),
    "a partition that is none": (
        [_FIRST, '{"at_s": 1, "who": "p", "fact": "Acknowledged", "uid": "a", "tp": "t-0", "offset": 0}'],
        "line 2: 'tp' of Acknowledged has to be a partition, [topic, number], not 't-0'",
    ),
    "records that are none": (
        [
            _FIRST,
            '{"at_s": 1, "who": "c", "fact": "Polled", "group": "g", "records": [["t", 0]], "read_committed": true}',
        ],
        "line 2: 'records' of Polled has to be a list of [topic, partition, offset, uid], not [['t', 0]]",
    ),
    "an outcome that is none": (
        [_FIRST, '{"at_s": 1, "who": "p", "fact": "Ended", "txn": "T", "outcome": "perhaps"}'],
        "line 2: 'outcome' of Ended has to be one of committed, aborted, unknown, not 'perhaps'",
    ),
}


@pytest.mark.parametrize("story", _WRONG)
def test_what_is_no_history_is_told_in_a_sentence(story: str, tmp_path: Path) -> None:
    lines, problem = _WRONG[story]
    path = tmp_path / "h.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(HistoryError) as told:
        History.read(path)
    assert str(told.value).startswith(f"{path}, {problem}")
    assert "\n" not in str(told.value)


def test_a_file_that_was_cut_anywhere_is_no_whole_history_and_its_beginning_can_be_read(tmp_path: Path) -> None:
    history, path = History(events=_example().events[:10]), tmp_path / "h.jsonl"
    history.write(path)
    whole = path.read_bytes()
    first, *lines = whole.splitlines(keepends=True)
    assert whole.decode().isascii() is False, "a cut within a character is among them"
    for size in range(len(whole) - 1):  # without its last byte, a line feed, it is whole
        path.write_bytes(whole[:size])
        with pytest.raises(HistoryError):
            History.read(path)
        left, there = size - len(first), 0
        for line in lines[:-1]:
            left -= len(line)
            there += left >= -1  # an event is there if nothing but its line feed is missing
        assert History.read(path, unfinished=True).events == history.events[:there]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"Dear diary", "line 1: this is no history"),
        (f"{_FIRST}\nDear diary\n".encode(), "line 2: not JSON"),
        (f'{_FIRST}\n{{"ottla-history-events": 1}}\n'.encode(), "line 2: the history had 1 event, and no events are"),
        (f"{_FIRST}\n".encode() + b"\xff\n", "it is not UTF-8"),
        (b"\xff\xfe", "it is not UTF-8"),
    ],
)
def test_what_is_read_as_unfinished_is_a_history_all_the_same(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(content)
    with pytest.raises(HistoryError, match=problem):
        History.read(path, unfinished=True)


def test_a_streamed_history_is_in_its_file_at_once_and_whole_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with StreamedHistory(path, _clock()) as history:
        for count, event in enumerate(_example().events, 1):
            history.add(event.who, event.fact)
            assert len(History.read(path, unfinished=True).events) == count
        with pytest.raises(HistoryError, match="breaks off"):
            History.read(path)
    assert History.read(path).events == history.events == _example().events
    history.close()
    assert History.read(path).events == history.events
    with pytest.raises(HistoryError, match=r"h\.jsonl is closed, and p notes Sent: close it as the last"):
        history.producer("p").sent("late")


def test_histories_are_merged_by_time() -> None:
    one, other = History(iter((0.0, 2.0)).__next__), History(iter((1.0, 3.0)).__next__)
    for history in (one, other, one, other):
        history.producer("p" if history is one else "q").sent("a")
    assert [event.who for event in History.merged([one, other]).events] == ["p", "q", "p", "q"]


def test_a_history_is_read_and_merged_whatever_class_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with StreamedHistory(path) as history:
        history.producer("p").sent("a")
    assert StreamedHistory.read(path).events == history.events
    assert StreamedHistory.merged([history]).events == history.events


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([History(), 1], "history 2 is 1: it has to be a History"),
        (["h.jsonl"], r"history 1 is 'h\.jsonl': it has to be a History; History\.read\(path\) has that of a file"),
        (5, "histories have to be a list, not 5"),
        (History(), "histories have to be a list, not <"),
    ],
)
def test_what_cannot_be_merged_is_told(given: Any, told: str) -> None:
    with pytest.raises(HistoryError, match=told):
        History.merged(given)


def test_a_second_log_is_refused_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with StreamedHistory(path) as history:
        history.log(TP, [(0, "a")])
        with pytest.raises(HistoryError, match="a second log of orders-0, which differs from the first"):
            history.log(TP, [])
    assert History.read(path).events == history.events


def test_other_positions_of_a_group_are_refused() -> None:
    """The last ones counted, and the others were passed over."""
    history = History()
    history.positions("g", {TP: 3})
    history.positions("g", {TP: 3})
    history.positions("other", {TP: 7})
    with pytest.raises(HistoryError, match="other positions of group g than before: note them once, in the end"):
        history.positions("g", {TP: 7})


def test_a_file_of_bytes_is_no_history(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HistoryError, match="it is not UTF-8"):
        History.read(path)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        History.read(tmp_path / "nowhere")
