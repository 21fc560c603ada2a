"""A member in a process of its own, seen from the test: what it has, its events, and the two ways to end it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ottla import TopicPartition
from ottla.testing import History
from ottla.testing.history import Event
from ottla.testing.history.facts import Assigned, Polled, Revoked
from tests.interop.members import java_command
from tests.interop.spoken import event_of, partitions_of

_WAIT_S = 120.0
_LINES_KEPT = 60


class Remote:
    """One member. It starts at once, and joins when it is told `go`; `changed` is called whenever it says something."""

    def __init__(self, client: str, settings: dict[str, Any], changed: Callable[[], None]) -> None:
        self.client = client
        self.who: str = settings["who"]
        self.owned: frozenset[TopicPartition] = frozenset()
        self.read: set[tuple[TopicPartition, int]] = set()
        self.events: list[Event] = []
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        self._changed = changed
        self._ready = threading.Event()
        if client == "java":
            command = java_command(**settings)
        else:
            command = [sys.executable, "-m", "tests.interop.matrix.member", client, json.dumps(settings)]
        # Its log goes into a file of its own, so that it does not come in the middle of what it says. It is appended
        # to: it and we share a position, which a look at it moves.
        self._log = tempfile.TemporaryFile("a+", errors="replace")  # noqa: SIM115  closed when it has ended
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        #: Why nobody listens any more.
        self.deaf: BaseException | None = None
        self._listens = threading.Thread(target=self._listen, daemon=True)
        self._listens.start()

    def _listen(self) -> None:
        try:
            self._hear()
        except BaseException as fault:  # noqa: BLE001  raised where somebody waits
            self.deaf = fault
        self.owned = frozenset()
        self._ready.set()
        self._changed()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, _, _ = line.rstrip().partition(" ")
            if what == "NOTE" and line.endswith("\n"):
                self._noted(event_of(line))
            elif what == "HAS":
                self.owned = partitions_of(line)
            elif what == "READY":
                self._ready.set()
            elif what != "POLLED":
                self._said.append(line)
            self._changed()

    def _noted(self, event: Event) -> None:
        self.events.append(event)
        match event.fact:  # what it has is also said after a poll, which may be long
            case Polled(records=records):
                self.read.update((tp, offset) for tp, offset, _ in records)
            case Assigned(partitions=partitions):
                self.owned |= set(partitions)
            case Revoked(partitions=partitions):
                self.owned -= set(partitions)
            case _:
                pass

    def go(self) -> None:
        """Join the group, as soon as the process is ready for it."""
        assert self._ready.wait(_WAIT_S), f"{self.who} does not start"
        self._tell()

    def leave(self) -> None:
        """Leave the group in order."""
        self._tell()
        assert self._process.wait(_WAIT_S) == 0, f"{self.who} ended badly: {self.last_words()}"
        self._end()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._end()
        notes = History()
        notes.consumer(self.who).killed()
        self.events += notes.events

    def _end(self) -> None:
        self._process.wait(_WAIT_S)
        self._listens.join(_WAIT_S)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for file in (self._process.stdin, self._process.stdout, self._log):
            file.close()

    def _tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    @property
    def has_ended(self) -> bool:
        """Whether its process is gone."""
        return self._process.poll() is not None

    def times_told(self) -> int:
        """How often it was given or deprived of partitions."""
        told = [event.fact for event in self.events if isinstance(event.fact, Assigned | Revoked)]
        return sum(1 for fact in told if fact.partitions)

    def last_words(self) -> str:
        """The end of what it said beside its notes, and of its log."""
        if not self._log.closed:
            self._log.seek(0)
            self._said.extend(self._log.readlines())
        return "".join(self._said)
