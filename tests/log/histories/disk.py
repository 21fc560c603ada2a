"""What a disk does to a log: it refuses, kills at a call, and lets the event loop go on while a thread waits for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

from ottla.base.errors import StorageError
from ottla.log.memory import CrashedError, MemoryStorage

#: What is refused together; None: every call.
_REFUSED: tuple[tuple[str, ...] | None, ...] = (
    ("sync",),
    ("append",),
    ("delete", "sync_names"),
    ("append", "truncate"),
    ("write", "mark", "unmark"),
    ("append", "open", "write", "sync"),
    ("truncate", "delete", "rename", "write"),
    ("read", "map", "open", "names"),
    None,
)


class Disk:
    """A storage, and its faults. After a kill or a loss of power there are none."""

    def __init__(self, rng: Random, meanwhile: Callable[[], None]) -> None:
        """`meanwhile` is what the event loop does while a thread is at a call of the disk."""
        self._rng = rng
        self._meanwhile = meanwhile
        self._in_thread = False
        self._fault: Callable[[str, str], bool] | None = None
        self.storage = MemoryStorage()
        self._adopt(self.storage)

    def _adopt(self, storage: MemoryStorage) -> None:
        self.storage = storage
        self._fault, self._in_thread = None, False
        storage.refuses = self._refuses

    def _refuses(self, action: str, name: str) -> bool:
        if self._in_thread and self._rng.random() < 0.05:
            self._in_thread = False
            self._meanwhile()
            self._in_thread = True  # unless the process was killed: what its thread does then is no turn of the loop
        return self._fault is not None and self._fault(action, name)

    def in_thread(self, work: Callable[[], object]) -> None:
        """Do what a broker does in another thread."""
        self._in_thread = True
        try:
            work()
        finally:
            self._in_thread = False

    def refuse(self) -> str:
        """From now on some calls fail. Returns which."""
        chance, actions = self._rng.choice((0.05, 0.2, 0.5)), self._rng.choice(_REFUSED)
        self._fault = lambda action, name: (actions is None or action in actions) and self._rng.random() < chance
        return f"{actions}, {chance}"

    def die_soon(self) -> None:
        """The process is killed at one of the next calls, or in the middle of the next write."""
        if self._rng.random() < 0.3:
            self.storage.tear_next = self._rng.randint(0, 90)
            return
        left = self._rng.randint(1, 15)

        def fault(action: str, name: str) -> bool:
            nonlocal left
            left -= 1
            if left <= 0:
                raise CrashedError(f"{action} {name}")
            return False

        self._fault = fault

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """No faults for a while."""
        fault, torn = self._fault, self.storage.tear_next
        self.mend()
        yield
        self._fault, self.storage.tear_next = fault, torn

    def mend(self) -> None:
        """No faults any more."""
        self._fault = self.storage.tear_next = None

    def kill(self) -> None:
        """The process dies."""
        self._adopt(self.storage.after_kill())

    def lose_power(self) -> None:
        """The machine dies: what was not synced may be there or not."""
        rng = self._rng
        self._adopt(
            self.storage.after_power_loss(
                keep=lambda name, synced, size: rng.choice((synced, size, rng.randint(synced, size))),
                keep_name=lambda name: rng.random() < 0.5,
            )
        )

    def try_to_start(self, start: Callable[[], object], *, may_lose_power: bool) -> None:
        """A start that is killed, or refused, or killed after it."""
        if self._rng.random() < 0.5:
            self.refuse()
        else:
            self.die_soon()
        with suppress(StorageError, CrashedError):
            start()
        if may_lose_power and self._rng.random() < 0.3:
            self.lose_power()
        else:
            self.kill()
