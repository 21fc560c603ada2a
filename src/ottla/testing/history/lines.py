"""A history as lines of JSON: the first names the form and its version, the last says how many events there are.

Each line between them is an event. A file that was cut, at whatever place, so has no last line or a wrong one.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, get_args, get_type_hints

from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.base.words import counted
from ottla.testing.history.facts import (
    Acknowledged,
    CommitOutcome,
    Event,
    Fact,
    Log,
    LogRecord,
    Polled,
    Positions,
    Read,
    Sought,
    TransactionOutcome,
)

#: Another meaning of a fact, or another form of a line, has another version. A new fact has not.
VERSION: Final = 2
_KEY: Final = "ottla-history"
_END: Final = "ottla-history-events"
#: The offset of a record, or of a position, that the test does not know.
_UNKNOWN: Final = -1
_OFFSETS: Final = "offsets are 0 or more"
_OR_UNKNOWN: Final = f"and {_UNKNOWN} is one that is not known"


class HistoryError(OttlaError, ValueError):
    """A file is no history, or one of its lines is no event."""


def encode(events: Iterable[Event]) -> Iterator[str]:
    """The lines of a whole history, without their ends. HistoryError as `line_of`."""
    yield first_line()
    count = 0
    for event in events:
        yield line_of(event)
        count += 1
    yield last_line(count)


def first_line() -> str:
    """The line that a history begins with."""
    return json.dumps({_KEY: VERSION})


def last_line(count: int) -> str:
    """The line that a history of so many events ends with."""
    return json.dumps({_END: count})


def line_of(event: Event) -> str:
    """The line of an event. HistoryError when it has bytes, say, instead of a text."""
    fact = event.fact
    content: dict[str, Any] = {"at_s": event.at_s, "who": event.who, "fact": type(fact).__name__}
    for name, (_, default) in _FIELDS[type(fact).__name__].items():
        value = getattr(fact, name)
        if default is MISSING or value != default:
            content[name] = _plain(value)
    return _line(content)


def check_fact(fact: Fact) -> None:
    """HistoryError for a fact with a field of another type, or an offset that cannot be.

    The checkers would pass it over, and find nothing wrong.
    """
    kind = type(fact).__name__
    if kind not in _FIELDS:
        raise HistoryError(f"{fact!r:.80} is no fact; it is one of {', '.join(sorted(_KINDS))}")
    for name, (reader, _) in _FIELDS[kind].items():
        value = getattr(fact, name)
        try:
            reader(_plain(value))
        except _WrongError as wrong:
            raise HistoryError(f"{name!r} of {kind} has to be {wrong}, not {value!r:.80}") from None
    _check_offsets(fact)


def _check_offsets(fact: Fact) -> None:
    """HistoryError for an offset that no record can have."""
    match fact:
        case Acknowledged(offset=offset) if offset < _UNKNOWN:
            raise HistoryError(f"'offset' of Acknowledged is {offset}: {_OFFSETS}, {_OR_UNKNOWN}")
        case Sought(positions=positions):
            lowest = min(positions.values(), default=0)
            if lowest < _UNKNOWN:
                raise HistoryError(f"'positions' of Sought have an offset of {lowest}: {_OFFSETS}, {_OR_UNKNOWN}")
        case Polled(records=records) | Log(records=records):
            lowest = min((record.offset for record in records), default=0)
            if lowest < 0:
                raise HistoryError(f"'records' of {type(fact).__name__} have an offset of {lowest}: {_OFFSETS}")
        case _:
            pass
    if isinstance(fact, Log):
        _check_ends(fact)


def _check_ends(log: Log) -> None:
    for name in ("start_offset", "high_watermark", "last_stable_offset"):
        offset = getattr(log, name)
        if offset is not None and offset < 0:
            raise HistoryError(f"{name!r} of Log is {offset}: {_OFFSETS}")
    end, stable = log.high_watermark, log.last_stable_offset
    if end is not None and stable is not None and stable > end:
        raise HistoryError(
            f"'last_stable_offset' of Log is {stable}, which is above its 'high_watermark', {end}: were the two taken "
            "for each other, or the high watermark read first, while somebody wrote?"
        )


def check_event(at_s: float, who: str, fact: Fact) -> None:
    """HistoryError for an event with a time, a client or a fact of another type."""
    try:
        _number(at_s)
    except _WrongError as wrong:
        raise HistoryError(f"'at_s' of an event has to be {wrong}, not {at_s!r:.80}") from None
    try:
        _text(who)
    except _WrongError as wrong:
        raise HistoryError(f"'who' of an event has to be {wrong}, not {who!r:.80}") from None
    check_fact(fact)


def check_final(finals: dict[TopicPartition | str, Fact], fact: Fact) -> None:
    """Take what is so in the end, a partition's log or a group's positions, to what is noted.

    HistoryError for another one of the same: one of them would be passed over.
    """
    match fact:
        case Log(tp=tp) if finals.setdefault(tp, fact) != fact:
            raise HistoryError(
                f"a second log of {tp}, which differs from the first: note what a partition holds once, in the end"
            )
        case Positions(group=group) if finals.setdefault(group, fact) != fact:
            raise HistoryError(f"other positions of group {group} than before: note them once, in the end")
        case _:
            pass


def check_events(events: Iterable[Event]) -> dict[TopicPartition | str, Fact]:
    """HistoryError, with its number, for the first that is no event. Returns what is so in the end (`check_final`)."""
    finals: dict[TopicPartition | str, Fact] = {}
    for number, event in enumerate(events, 1):
        if not isinstance(event, Event) or not isinstance(event.fact, Fact):
            raise HistoryError(
                f"event {number} of the history is {event!r:.80}: it has to be an Event with a fact, as the notebooks "
                "of a History make them"
            )
        try:
            check_event(event.at_s, event.who, event.fact)
            check_final(finals, event.fact)
        except HistoryError as wrong:
            raise HistoryError(f"event {number} of the history: {wrong}") from None
    return finals


def _line(content: dict[str, Any]) -> str:
    """An event as JSON. HistoryError for what its line cannot hold."""
    try:
        line = json.dumps(content, ensure_ascii=False, allow_nan=False)
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(
            content, allow_nan=False
        )  # half of a pair of surrogates, say: in ASCII it is no byte of its own
    except (TypeError, ValueError) as fault:
        kind, who = content["fact"], content["who"]
        raise HistoryError(
            f"{kind} of {who!r} cannot be written: {fault}. A uid is a text: decode the bytes of a value, or use repr()"
        ) from None
    return line


def decode(lines: Iterable[str], *, unfinished: bool = False) -> Iterator[Event]:
    """The events of lines. HistoryError, with the number of the line, when one is none, or when they are not all there.

    `unfinished`: their writer was killed, perhaps. The last line may be missing, and the line before be cut: what does
    not end in a line feed, and is no event, is left out.
    """
    numbered = enumerate(lines, 1)
    number, first = next(numbered, (1, ""))
    if unfinished and first_line().startswith(first):
        return
    _check_version(first)
    count = 0
    for number, line in numbered:
        if not line.strip():
            continue
        try:
            content = _object(line)
            if _END in content:
                _check_count(content, count)
                break
            event = _event(content)
        except _WrongError as wrong:
            if unfinished and not line.endswith("\n"):
                return
            raise HistoryError(f"line {number}: {wrong}") from None
        yield event
        count += 1
    else:
        if not unfinished:
            raise HistoryError(
                f"line {number}: the history breaks off here: the last line of one says how many events it has. The "
                "file was cut, or its writer was killed: History.read(path, unfinished=True) takes what is there"
            )
    for number, line in numbered:
        if line.strip():
            raise HistoryError(f"line {number}: the history has ended before: one file holds one history")


class _WrongError(Exception):
    """What is wrong with a line."""


def _check_version(first: str) -> None:
    try:
        version = _object(first).get(_KEY)
    except _WrongError:
        version = None
    if version is None:
        raise HistoryError(
            f"line 1: this is no history: the first line of one is {first_line()}. "
            "Name a file that History.write() made"
        )
    if version != VERSION:
        raise HistoryError(
            f"line 1: the history has version {version}, and this Ottla reads version {VERSION}: "
            "read it with the Ottla that wrote it, or run the test again"
        )


def _check_count(content: Mapping[str, Any], count: int) -> None:
    told = _taken(content, _END, _whole, "the last line")
    if told != count:
        raise _WrongError(
            f"the history had {counted(told, 'event')}, and {counted(count, 'event')} "
            f"{'is' if count == 1 else 'are'} in the file: were lines lost, or changed by hand?"
        )


def _object(line: str) -> dict[str, Any]:
    try:
        content = json.loads(line.strip(), parse_constant=_no_number)
    except json.JSONDecodeError as fault:
        problem = f"column {fault.colno}: {fault.msg}"
    except (ValueError, RecursionError) as fault:
        problem = str(fault)
    else:
        if isinstance(content, dict):
            return content
        raise _WrongError("an event is a JSON object, in braces")
    raise _WrongError(f"not JSON ({problem}); was the file cut, or changed by hand?")


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _event(content: dict[str, Any]) -> Event:
    at_s = _taken(content, "at_s", _number)
    who = _taken(content, "who", _text)
    kind = _taken(content, "fact", _text)
    if kind not in _KINDS:
        raise _WrongError(f"{kind!r} is no fact; it is one of {', '.join(sorted(_KINDS))}")
    values = {}
    for name, (reader, default) in _FIELDS[kind].items():
        if name in content or default is MISSING:
            values[name] = _taken(content, name, reader, kind)
    unknown = sorted(content.keys() - values.keys() - {"at_s", "who", "fact"})
    if unknown:
        raise _WrongError(f"{kind} has no {unknown[0]!r}; it has {', '.join(_FIELDS[kind]) or 'nothing'}")
    return Event(at_s, who, _KINDS[kind](**values))


def _taken(content: Mapping[str, Any], name: str, reader: Callable[[Any], Any], kind: str = "an event") -> Any:
    if name not in content:
        raise _WrongError(f"{kind} has to have {name!r}")
    try:
        return reader(content[name])
    except _WrongError as wrong:
        raise _WrongError(f"{name!r} of {kind} has to be {wrong}, not {content[name]!r:.80}") from None


# values of one type: to JSON, and from it


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return [[*tp, offset] if isinstance(tp, tuple) else [tp, offset] for tp, offset in value.items()]
    if isinstance(value, Read):
        return [*value.tp, value.offset, value.uid]
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _WrongError("a text")
    return value


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _number(value: Any) -> float:
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        pass
    raise _WrongError("a number")


def _optional_number(value: Any) -> float | None:
    return None if value is None else _number(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _WrongError("a whole number")
    return value


def _optional_whole(value: Any) -> int | None:
    return None if value is None else _whole(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongError("true or false")
    return value


def _one_of(words: Any) -> Callable[[Any], str]:
    allowed = get_args(words)

    def read(value: Any) -> str:
        if value not in allowed:
            raise _WrongError(f"one of {', '.join(allowed)}")
        return str(value)

    return read


def _row(value: Any, *readers: Callable[[Any], Any]) -> list[Any]:
    if not isinstance(value, list) or len(value) != len(readers):
        raise _WrongError("a list")
    return [read(each) for read, each in zip(readers, value, strict=True)]


def _partition(value: Any) -> TopicPartition:
    try:
        return TopicPartition(*_row(value, _text, _whole))
    except _WrongError:
        raise _WrongError("a partition, [topic, number]") from None


def _rows(value: Any, form: str, *readers: Callable[[Any], Any]) -> list[list[Any]]:
    try:
        if not isinstance(value, list):
            raise _WrongError("a list")
        return [_row(each, *readers) for each in value]
    except _WrongError:
        raise _WrongError(f"a list of {form}") from None


def _partitions(value: Any) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(*row) for row in _rows(value, "[topic, partition]", _text, _whole))


def _offsets(value: Any) -> dict[TopicPartition, int]:
    rows = _rows(value, "[topic, partition, offset]", _text, _whole, _whole)
    return {TopicPartition(topic, number): offset for topic, number, offset in rows}


def _reads(value: Any) -> tuple[Read, ...]:
    rows = _rows(value, "[topic, partition, offset, uid]", _text, _whole, _whole, _text)
    return tuple(Read(TopicPartition(topic, number), offset, uid) for topic, number, offset, uid in rows)


def _log_records(value: Any) -> tuple[LogRecord, ...]:
    return tuple(LogRecord(*row) for row in _rows(value, "[offset, uid, visible]", _whole, _text, _truth))


#: The type of a field → what reads it.
_READERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    str: _text,
    str | None: _optional_text,
    int: _whole,
    int | None: _optional_whole,
    float | None: _optional_number,
    bool: _truth,
    TopicPartition: _partition,
    tuple[TopicPartition, ...]: _partitions,
    Mapping[TopicPartition, int]: _offsets,
    tuple[Read, ...]: _reads,
    tuple[LogRecord, ...]: _log_records,
    TransactionOutcome: _one_of(TransactionOutcome),
    CommitOutcome: _one_of(CommitOutcome),
}
_KINDS: Final[Mapping[str, Callable[..., Fact]]] = {kind.__name__: kind for kind in get_args(Fact)}
#: Fact → field → what reads it, and its default.
_FIELDS: Final[Mapping[str, Mapping[str, tuple[Callable[[Any], Any], Any]]]] = {
    kind.__name__: {field.name: (_READERS[get_type_hints(kind)[field.name]], field.default) for field in fields(kind)}
    for kind in get_args(Fact)
}
