"""How recorded clients name what they note."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.testing.history import ProducerNotes


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

    def ending(self, *, commit: bool) -> Iterator[None]:
        """For `contextmanager`: around the call that commits or aborts."""
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
