"""Small histories as text, for the tests of the checkers.

A line is who, what, and the rest. A line that begins with `-` stands only in the history with the fault, one with `+`
only in the history as it should have been:

    p   sends a
    p   ack a 0          acknowledged at offset 0 of t-0; 1/0 is offset 0 of t-1; ? is an offset that nobody told
    c   polls 0:a 1:b    offset and record; c, c1, c2 … are members of the group g; solo has no group
    d   deleting 2       asks for the deletion of what is below 2; then "d deleted 2"
  - log 0:a 1:x! 2:b     what t-0 holds in the end; x is not committed
  + log 0:a 2:b
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.base.types import TopicPartition
from ottla.testing.history import History, LogRecord, check_history
from ottla.testing.history.facts import Sent

_GROUP: Final = "g"


class _Stopwatch:
    """One second from event to event."""

    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def histories(text: str) -> tuple[History, History]:
    """The history with the fault, and the one without it."""
    return _told(text, "-"), _told(text, "+")


def names(history: History) -> set[str]:
    """What the checkers find."""
    return {anomaly.name for anomaly in check_history(history)}


def _told(text: str, wanted: str) -> History:
    history = History(_Stopwatch())
    for line in text.strip().splitlines():
        words = line.split()
        if words[0] in "-+":
            mark, *words = words
            if mark != wanted:
                continue
        if words[0] in _STATE:
            _STATE[words[0]](history, words[1:])
        else:
            _CLIENT[words[1]](history, words[0], words[2:])
    return history


def _place(word: str) -> tuple[TopicPartition, int]:
    number, slash, offset = word.rpartition("/")
    return TopicPartition("t", int(number) if slash else 0), -1 if offset == "?" else int(offset)


def _records(words: list[str]) -> list[tuple[TopicPartition, int, str]]:
    return [(*_place(where), uid) for where, _, uid in (word.partition(":") for word in words)]


def _options(words: list[str]) -> dict[str, str]:
    """`gen 3 as i` → {"gen": "3", "as": "i"}."""
    return dict(zip(words[::2], words[1::2], strict=True))


# clients


def _sends(history: History, who: str, words: list[str]) -> None:
    uid, *rest = words
    more = _options(rest)
    history.add(who, Sent(uid, more.get("in"), more.get("by", ""), more.get("from")))


def _ack(history: History, who: str, words: list[str]) -> None:
    history.producer(who).acknowledged(words[0], *_place(words[1]))


def _offsets(history: History, who: str, words: list[str]) -> None:
    tp, offset = _place(words[0])
    more = _options(words[1:])
    history.producer(who).offsets_sent(
        more["in"], _GROUP, {tp: offset}, member_id=more.get("of", ""), generation=int(more.get("gen", "-1"))
    )


def _begins(history: History, who: str, words: list[str]) -> None:
    timeout_s = float(words[1]) if len(words) > 1 else None
    history.producer(who).began(words[0], who, timeout_s)


def _polls(history: History, who: str, words: list[str], *, read_committed: bool = True) -> None:
    group = None if who == "solo" else _GROUP
    history.consumer(who, group=group, read_committed=read_committed).polled(_records(words))


def _dirty(history: History, who: str, words: list[str]) -> None:
    _polls(history, who, words, read_committed=False)


def _assigned(history: History, who: str, words: list[str]) -> None:
    more = _options(words)
    tp = TopicPartition("t", int(more.get("partition", "0")))
    history.consumer(who, group=_GROUP).assigned([tp], generation=int(more["gen"]), instance_id=more.get("as"))


def _revoked(history: History, who: str, words: list[str]) -> None:
    more = _options(words)
    tp = TopicPartition("t", int(more.get("partition", "0")))
    generation, lost = int(more.get("gen", "1")), more.get("lost") == "yes"
    history.consumer(who, group=_GROUP).revoked([tp], generation=generation, lost=lost)


def _seeks(history: History, who: str, words: list[str]) -> None:
    history.consumer(who).sought(dict([_place(words[0])]))


def _commits(history: History, who: str, words: list[str]) -> None:
    more = _options(words[1:])
    outcome = more.get("outcome", "committed")
    assert outcome in ("committed", "failed", "unknown")
    history.consumer(who, group=_GROUP).committed(
        dict([_place(words[0])]),
        member_id=who,
        generation=int(more.get("gen", "1")),
        outcome="committed" if outcome == "committed" else "failed" if outcome == "failed" else "unknown",
        call=more.get("call"),
    )


def _noted(note: Callable[[History, str, str], object]) -> Callable[[History, str, list[str]], None]:
    def line(history: History, who: str, words: list[str]) -> None:
        note(history, who, words[0] if words else "")

    return line


_CLIENT: Final[Mapping[str, Callable[[History, str, list[str]], None]]] = {
    "sends": _sends,
    "ack": _ack,
    "fails": _noted(lambda history, who, uid: history.producer(who).failed(uid, "refused")),
    "unknown": _noted(lambda history, who, uid: history.producer(who).unknown(uid, "timeout")),
    "begins": _begins,
    "offsets": _offsets,
    "ends": _noted(lambda history, who, txn: history.producer(who).ending(txn, commit=True)),
    "aborts": _noted(lambda history, who, txn: history.producer(who).ending(txn, commit=False)),
    "committed": _noted(lambda history, who, txn: history.producer(who).ended(txn, "committed")),
    "aborted": _noted(lambda history, who, txn: history.producer(who).ended(txn, "aborted")),
    "unsure": _noted(lambda history, who, txn: history.producer(who).ended(txn, "unknown")),
    "polls": _polls,
    "dirty-polls": _dirty,
    "assigned": _assigned,
    "revoked": _revoked,
    "seeks": _seeks,
    "commits": _commits,
    "calls": _noted(lambda history, who, call: history.producer(who).called(call, "flush")),
    "returns": _noted(lambda history, who, call: history.producer(who).returned(call)),
    "deleting": _noted(lambda history, who, place: history.deleting(who, *_place(place))),
    "deleted": _noted(lambda history, who, place: history.deleted(who, *_place(place))),
    "killed": _noted(lambda history, who, _: history.producer(who).killed()),
}


# the final state


def _log(history: History, words: list[str], number: int = 0) -> None:
    records = [word for word in words if ":" in word]
    more = dict(word.split("=") for word in words if "=" in word)
    history.log(
        TopicPartition("t", number),
        [
            LogRecord(int(offset), uid.rstrip("!"), not uid.endswith("!"))
            for offset, uid in (r.split(":") for r in records)
        ],
        start_offset=int(more.get("start", "0")),
        high_watermark=int(more["end"]) if "end" in more else None,
        last_stable_offset=int(more["lso"]) if "lso" in more else None,
        committed_only="committed-only" in words,
        compacted="compacted" in words,
    )


def _drained(history: History, words: list[str]) -> None:
    history.drained(
        _GROUP,
        [TopicPartition("t", 0)],
        read_committed="dirty" not in words,
        transforms="transforms" in words,
    )


_STATE: Final[Mapping[str, Callable[[History, list[str]], None]]] = {
    "log": _log,
    "log1": lambda history, words: _log(history, words, 1),
    "drained": _drained,
    "began": lambda history, words: history.group_began(_GROUP, keeps_offsets="keeping" in words),
    "positions": lambda history, words: history.positions(_GROUP, dict(map(_place, words))),
}
