"""What the recorded clients have in common: names of records, the ends of transactions, positions and commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from ottla.base.types import TopicPartition
from ottla.testing.history import ConsumerNotes, History, ProducerNotes, Read
from ottla.testing.history.facts import CommitOutcome


def uid(topic: str, value: bytes | str | None) -> str:
    """The name of a record."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes | memoryview | bytearray) else value
    return f"{topic}:{text}"


class Transactions:
    """The transactions of one producer: their names, and how each of them ends."""

    def __init__(self, notes: ProducerNotes, transactional_id: str | None) -> None:
        self._notes = notes
        self._transactional_id = transactional_id or ""
        self._numbers = 0
        #: The name of the one that is open.
        self.open: str | None = None

    def began(self) -> None:
        """A transaction was begun."""
        self._numbers += 1
        self.open = f"{self._notes.who}/{self._numbers}"
        self._notes.began(self.open, self._transactional_id)

    @contextmanager
    def ending(self, *, commit: bool) -> Iterator[None]:
        """Around the call that commits or aborts."""
        txn = self.open
        if txn is None:  # the client will refuse it
            yield
            return
        self._notes.ending(txn, commit=commit)
        try:
            yield
        except BaseException:
            self._notes.ended(txn, "unknown")  # unless it is asked again
            raise
        self._notes.ended(txn, "committed" if commit else "aborted")
        self.open = None


class Reading:
    """What one consumer is given, and what it commits."""

    def __init__(
        self,
        history: History,
        who: str,
        group: str | None,
        *,
        read_committed: bool,
        instance_id: str | None = None,
    ) -> None:
        self.notes: ConsumerNotes = history.consumer(who, group=group, read_committed=read_committed)
        self._instance_id = instance_id
        self._commits = 0
        #: What a commit without offsets commits, without the control records behind it.
        self.next: dict[TopicPartition, int] = {}

    @classmethod
    def of(cls, history: History, who: str, configs: Mapping[str, object]) -> Self:
        """For clients whose settings are keyword arguments, and which read what is not committed unless told."""
        group, instance_id = configs.get("group_id"), configs.get("group_instance_id")
        return cls(
            history,
            who,
            None if group is None else str(group),
            read_committed=configs.get("isolation_level") == "read_committed",
            instance_id=None if instance_id is None else str(instance_id),
        )

    def placed(self, partitions: Iterable[Any]) -> None:
        """The client goes on somewhere else in these partitions (its own named tuples)."""
        self.moved(dict.fromkeys((TopicPartition(*tp) for tp in partitions), -1))

    def polled(self, reads: Iterable[Read]) -> None:
        """These records were returned."""
        found = list(reads)
        self.notes.polled(found)
        self.next.update((each.tp, each.offset + 1) for each in found)

    def assigned(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """These partitions were given."""
        self.notes.assigned(partitions, generation=generation, instance_id=self._instance_id)

    def gone(self, partitions: Iterable[TopicPartition], *, lost: bool = False) -> None:
        """These partitions were taken away."""
        gone = list(partitions)
        self.notes.revoked(gone, lost=lost)
        self._forget(gone)

    def moved(self, positions: Mapping[TopicPartition, int]) -> None:
        """The positions were changed; -1 is an offset that is not known."""
        self.notes.sought(positions)
        self._forget(positions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self.next.pop(tp, None)

    @contextmanager
    def committing(
        self, offsets: Mapping[TopicPartition, int] | None, member_id: str, generation: int
    ) -> Iterator[None]:
        """Around a commit of `offsets`, or of all that was read."""
        told = dict(self.next if offsets is None else offsets)
        self._commits += 1
        call = f"{self.notes.who} commit {self._commits}"

        def note(outcome: CommitOutcome) -> None:
            self.notes.committed(told, member_id=member_id, generation=generation, outcome=outcome, call=call)

        self.notes.called(call)
        try:
            yield
        except BaseException as error:
            self.notes.returned(call, error)
            note("unknown")
            raise
        self.notes.returned(call)
        note("committed")
