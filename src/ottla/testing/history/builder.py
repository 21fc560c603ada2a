"""What a test did and saw, in order: `History`, and the notebooks in which its clients write."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ottla.base.types import TopicPartition
from ottla.testing.history.facts import (
    Acknowledged,
    Assigned,
    Began,
    Called,
    CommitOutcome,
    Committed,
    Deleted,
    Deleting,
    Drained,
    Ended,
    Ending,
    Event,
    Fact,
    Failed,
    GroupBegan,
    Killed,
    Log,
    LogRecord,
    OffsetsSent,
    Polled,
    Positions,
    Read,
    Returned,
    Revoked,
    Sent,
    Sought,
    TransactionOutcome,
    Unknown,
)
from ottla.testing.history.lines import HistoryError, check_event, check_events, check_final, decode, encode

_Row = TypeVar("_Row")

#: Whose events the final state is.
FINAL_STATE = "final state"
#: Who notes what happened to a group.
_BROKER = "the broker"


class History:
    """The events of one test, in the order of real time. Threads may write into it at the same time.

        history = History()
        writer = history.producer("p1")
        writer.sent("order 1")
        writer.acknowledged("order 1", TopicPartition("orders", 0), 0)

    Note what begins before you call (`sent`, `ending`, `called`), and what ended as soon as the call returns:
    the checkers rely upon this order. `clock` gives seconds; times are for people, and for the timeout of a
    transaction.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, events: Iterable[Event] = ()) -> None:
        if not callable(clock):
            raise HistoryError(
                f"clock has to be a function that gives seconds, such as time.monotonic, not {clock!r:.80}"
            )
        self._clock = clock
        self._lock = threading.Lock()
        self._events = list(_each(events, "events"))
        self._finals = check_events(self._events)

    @property
    def events(self) -> tuple[Event, ...]:
        """All events until now."""
        with self._lock:
            return tuple(self._events)

    def add(self, who: str, fact: Fact, at_s: float | None = None) -> None:
        """Note a fact of a client, now or at a given time (then in the order of the calls all the same).

        HistoryError when one of its fields has another type than it should: a uid of bytes, say; and for another log of
        a partition that has one.
        """
        with self._lock:
            self._events.append(self._checked(who, fact, at_s))

    def _checked(self, who: str, fact: Fact, at_s: float | None) -> Event:
        event = Event(self._clock() if at_s is None else at_s, who, fact)
        check_event(event.at_s, who, fact)
        check_final(self._finals, fact)
        return event

    def producer(self, who: str) -> "ProducerNotes":
        """A notebook for one producer. Its name is its own: give a new producer a new one."""
        return ProducerNotes(self, who)

    def consumer(self, who: str, *, group: str | None = None, read_committed: bool = True) -> "ConsumerNotes":
        """A notebook for one consumer; `read_committed` is its `isolation.level`."""
        return ConsumerNotes(self, who, group, read_committed=read_committed)

    # the final state

    def log(
        self,
        tp: TopicPartition,
        records: Iterable[LogRecord | tuple[int, str]],
        *,
        start_offset: int = 0,
        high_watermark: int | None = None,
        last_stable_offset: int | None = None,
        committed_only: bool = False,
        compacted: bool = False,
    ) -> None:
        """What a partition holds in the end: all its data records, also aborted ones (see `Log`). Noted once.

        `visible` tells those that a read_committed consumer returns; a record without it is visible.
        """
        found = _sorted(_rows(LogRecord, records, "offset, uid, or a LogRecord"))
        self.add(
            FINAL_STATE,
            Log(tp, found, start_offset, high_watermark, last_stable_offset, committed_only, compacted),
        )

    def positions(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """A group's committed offsets in the end."""
        self.add(FINAL_STATE, Positions(group, _offsets(offsets)))

    def drained(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        *,
        read_committed: bool = True,
        transforms: bool = False,
    ) -> None:
        """The group has read these partitions from their beginning to their end (see `Drained`)."""
        self.add(FINAL_STATE, Drained(group, _sorted(_partitions(partitions)), read_committed, transforms))

    def group_began(self, group: str, *, keeps_offsets: bool = False) -> None:
        """The group begins again with its first generation: it was deleted, or an empty one got another protocol.

        The latter keeps what was committed: nobody misses that in the end unless `keeps_offsets` says so.
        """
        self.add(_BROKER, GroupBegan(group, keeps_offsets))

    # deletion

    def deleting(self, who: str, tp: TopicPartition, offset: int) -> None:
        """Somebody is about to ask for DeleteRecords up to this offset; or retention may retire what is below it."""
        self.add(who, Deleting(tp, offset))

    def deleted(self, who: str, tp: TopicPartition, offset: int) -> None:
        """DeleteRecords up to this offset was answered: nobody who begins to read now is given a record below it."""
        self.add(who, Deleted(tp, offset))

    # files

    def write(self, path: str | Path) -> None:
        """Write lines of JSON. OSError when the file cannot be written, HistoryError when a uid is no text."""
        with Path(path).open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in encode(self.events))

    @staticmethod
    def read(path: str | Path, *, unfinished: bool = False) -> "History":
        """The history of a file that `write` made, or a `StreamedHistory`.

        HistoryError when it is none, of another version, or not whole; OSError when the file cannot be read.
        `unfinished` takes what a process that was killed has left: without the end, and without an event that it had
        not written to its end.
        """
        try:
            with Path(path).open("rb") as file:
                return History(events=decode(_texts(file, unfinished=unfinished), unfinished=unfinished))
        except UnicodeDecodeError:
            wrong = "this is no history: it is not UTF-8. Name a file that History.write() made"
            raise HistoryError(f"{path}: {wrong}") from None
        except HistoryError as wrong:
            raise HistoryError(f"{path}, {wrong}") from None

    @staticmethod
    def merged(histories: Iterable["History"]) -> "History":
        """One history of those of several processes, by their times: their clocks have to be one, as on one machine."""
        found = list(_each(histories, "histories"))
        for number, each in enumerate(found, 1):
            if not isinstance(each, History):
                raise HistoryError(
                    f"history {number} is {each!r:.80}: it has to be a History; History.read(path) has that of a file"
                )
        return History(events=sorted((event for each in found for event in each.events), key=lambda event: event.at_s))


def _texts(lines: Iterable[bytes], *, unfinished: bool) -> Iterator[str]:
    """The lines of a file. One that is cut within a character can only be the last, and not the first: it is none."""
    for number, line in enumerate(lines):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            if unfinished and number and not line.endswith(b"\n"):
                return
            raise


class _Notes:
    """What every client can note."""

    def __init__(self, history: History, who: str) -> None:
        self._history = history
        self.who = who

    def note(self, fact: Fact) -> None:
        """Any fact of this client, now."""
        self._history.add(self.who, fact)

    def called(self, call: str, what: str = "") -> None:
        """A call begins. It has to return until the history ends, unless the client is killed."""
        self.note(Called(call, what))

    def returned(self, call: str, error: object = None) -> None:
        """The call returned, or raised `error`."""
        self.note(Returned(call, None if error is None else _told(error)))

    def killed(self) -> None:
        """The client's process was killed. Start the next one under another name."""
        self.note(Killed())


class ProducerNotes(_Notes):
    """A notebook of a producer."""

    def sent(self, uid: str, *, txn: str | None = None, source: str | None = None) -> None:
        """The user is about to give the record to the producer. `source`: the record that it is made from."""
        self.note(Sent(uid, txn, source=source))

    def acknowledged(self, uid: str, tp: TopicPartition, offset: int = -1) -> None:
        """The record is written, at this offset if it is known."""
        self.note(Acknowledged(uid, tp, offset))

    def failed(self, uid: str, error: object) -> None:
        """The record is certainly not written: `send` raised, or the broker refused it."""
        self.note(Failed(uid, _told(error)))

    def unknown(self, uid: str, error: object) -> None:
        """Nobody knows whether the record is written: a timeout, a lost connection. When in doubt, it is this one."""
        self.note(Unknown(uid, _told(error)))

    def began(self, txn: str, transactional_id: str, timeout_s: float | None = None) -> None:
        """A transaction began. `txn` names this one transaction; `timeout_s` is `transaction.timeout.ms` in seconds."""
        self.note(Began(txn, transactional_id, timeout_s))

    def offsets_sent(
        self,
        txn: str,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        member_id: str = "",
        generation: int = -1,
    ) -> None:
        """`send_offsets_to_transaction` returned. A generation of -1 says that none was sent, or that it is not known.

        Where no member of the group has told its generation (`ConsumerNotes.assigned`), nobody looks for offsets that
        were sent without it.
        """
        self.note(OffsetsSent(txn, group, _offsets(offsets), member_id, generation))

    def ending(self, txn: str, *, commit: bool) -> None:
        """The user is about to commit the transaction, or to abort it."""
        self.note(Ending(txn, commit))

    def ended(self, txn: str, outcome: TransactionOutcome) -> None:
        """What the user was told: "committed", "aborted", or "unknown"."""
        self.note(Ended(txn, outcome))


class ConsumerNotes(_Notes):
    """A notebook of a consumer."""

    def __init__(self, history: History, who: str, group: str | None, *, read_committed: bool) -> None:
        super().__init__(history, who)
        self.group = group
        self.read_committed = read_committed

    def polled(self, records: Iterable[Read | tuple[TopicPartition, int, str]]) -> None:
        """A poll returned these records: partition, offset, uid."""
        found = tuple(_rows(Read, records, "partition, offset, uid"))
        if found:
            self.note(Polled(self.group, found, self.read_committed))

    def assigned(
        self, partitions: Iterable[TopicPartition], *, generation: int = -1, instance_id: str | None = None
    ) -> None:
        """The member was given partitions. Under cooperative rebalancing, only those that are new.

        Without the generation (of a client that does not tell it), nobody looks for two owners, nor for offsets that
        were sent to a transaction without it.
        """
        self.note(Assigned(self._group(), generation, _partitions(partitions), instance_id))

    def revoked(self, partitions: Iterable[TopicPartition], *, generation: int = -1, lost: bool = False) -> None:
        """Partitions were taken from the member."""
        self.note(Revoked(self._group(), generation, _partitions(partitions), lost))

    def sought(self, positions: Mapping[TopicPartition, int]) -> None:
        """The position was changed: by a seek, or by `auto.offset.reset`. -1 is an offset that you do not know."""
        self.note(Sought(_offsets(positions)))

    def committed(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        member_id: str = "",
        generation: int = -1,
        outcome: CommitOutcome = "committed",
        call: str | None = None,
    ) -> None:
        """The answer to a commit is there. `call` names the `called` from before it."""
        self.note(Committed(self._group(), _offsets(offsets), member_id, generation, outcome, call))

    def _group(self) -> str:
        if self.group is None:
            raise HistoryError(f"{self.who} is in no group: give history.consumer() its group")
        return self.group


def _rows(kind: Callable[..., _Row], records: Iterable[tuple[Any, ...]], form: str) -> list[_Row]:
    """The records of a call. HistoryError for what is none: their fields are looked at with the fact."""
    found = []
    for number, record in enumerate(_each(records, "records"), 1):
        try:
            found.append(kind(*record))
        except TypeError:
            raise HistoryError(f"record {number} is {record!r:.80}: it has to be ({form})") from None
    return found


def _partitions(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(_each(partitions, "partitions"))


def _sorted(values: Iterable[_Row]) -> tuple[_Row, ...]:
    found = list(values)
    with suppress(TypeError):  # some are none: the fact that has them is refused
        found.sort()
    return tuple(found)


def _offsets(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    if not isinstance(offsets, Mapping):
        raise HistoryError(f"offsets have to be a mapping of TopicPartitions to offsets, not {offsets!r:.80}")
    return dict(offsets)


def _each(values: Iterable[_Row], name: str) -> Iterator[_Row]:
    try:
        return iter(values)
    except TypeError:
        raise HistoryError(f"{name} have to be a list, not {values!r:.80}") from None


def _told(error: object) -> str:
    return error if isinstance(error, str) else repr(error)
