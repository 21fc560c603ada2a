"""Any order of appends, syncs, rolls, deletions, refusals, kills and losses of power: what was synced stays in the log.

Each history follows from its number. A failing one says what it did.
"""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from ottla.base.errors import StorageError
from ottla.log.config import LogConfig
from ottla.log.memory import CrashedError, MemoryStorage
from ottla.log.partition import PartitionLog
from tests.log.batches import NOW_MS, batch
from tests.log.logs import append, every_batch, open_log

_HISTORIES, _STEPS = 40, 60
#: Where what the producer has sent begins in a batch: behind the offset, which the broker writes, and the CRC's fields.
_SENT = 21


class _History:
    def __init__(self, number: int) -> None:
        self.rng = Random(number)
        self.did: list[str] = []
        self._storage = MemoryStorage()
        self._checkpoint: tuple[int, int] | None = None
        #: What was appended, by offset; up to where it is on the device; and up to where it was deleted.
        self._there: dict[int, bytes] = {}
        self._synced = self._deleted = 0
        #: What is being appended: a kill may leave it there, or not.
        self._pending: dict[int, bytes] = {}
        self._log = self._open()

    def _open(self) -> PartitionLog:
        config = LogConfig(
            flush_messages=self.rng.choice((1, 1, 2, 3)),
            segment_bytes=self.rng.choice((120, 260)),
            retention_bytes=self.rng.choice((-1, 0, 150)),
        )
        if self._checkpoint is None:
            log = open_log(self._storage, config)
        else:
            start, recovery_point = self._checkpoint
            log = open_log(self._storage, config, recovery_point=recovery_point, log_start_offset=start)
        log.synced.sync_due()  # as a broker does
        return log

    def run(self) -> None:
        steps: tuple[Callable[[], object], ...] = (
            *(self.append,) * 6,
            *(self.sync,) * 3,
            self.flush,
            self.roll,
            self.retire,
            self.delete_retired,
            self.delete_records,
            self.write_checkpoint,
            self.refuse,
            self.refuse_nothing,
            self.die_soon,
            self.kill,
            self.lose_power,
        )
        for _ in range(_STEPS):
            step = self.rng.choice(steps)
            self.did.append(step.__name__)
            try:
                step()
            except StorageError as fault:
                self.did[-1] += f": {fault}"
            except CrashedError as fault:
                self.did[-1] += f": killed at {fault}"
                self.rng.choice((self.kill, self.lose_power))()
            self._deleted = max(self._deleted, self._log.log_start_offset)

    # what happens

    def append(self) -> None:
        sent = batch(value=b"%d" % len(self.did))
        self._pending = {self._log.end_offset: bytes(sent[_SENT:])}
        append(self._log, sent)
        self._there |= self._pending

    def sync(self) -> None:
        self._log.synced.sync_due()
        self._synced = max(self._synced, self._log.synced.offset)

    def flush(self) -> None:
        self._log.flush()
        self._synced = max(self._synced, self._log.synced.offset)

    def roll(self) -> None:
        self._log.roll(NOW_MS)

    def retire(self) -> None:
        self._log.retire(NOW_MS)

    def delete_retired(self) -> None:
        self._log.delete_retired()

    def delete_records(self) -> None:
        self._log.delete_records_before(self.rng.randint(self._log.log_start_offset, self._log.high_watermark))

    def write_checkpoint(self) -> None:
        self._checkpoint = (self._log.log_start_offset, self._log.recovery_point)

    def refuse(self) -> None:
        chance = self.rng.choice((0.1, 0.5))
        refused = self.rng.choice((("sync",), ("delete", "sync_names"), ("append", "open", "write", "sync")))
        self._storage.refuses = lambda action, name: action in refused and self.rng.random() < chance

    def refuse_nothing(self) -> None:
        self._storage.refuses = None

    def die_soon(self) -> None:
        """At one of the next calls of the disk."""
        left = self.rng.randint(1, 15)

        def refuses(action: str, name: str) -> bool:
            nonlocal left
            left -= 1
            if left <= 0:
                raise CrashedError(f"{action} {name}")
            return False

        self._storage.refuses = refuses

    def kill(self) -> None:
        self._storage = self._storage.after_kill()
        self._start(len(self._there) and max(self._there) + 1)

    def lose_power(self) -> None:
        self._storage = self._storage.after_power_loss(
            keep=lambda name, synced, size: self.rng.randint(synced, size),
            keep_name=lambda name: self.rng.random() < 0.5,
        )
        self._start(self._synced)

    def _start(self, expected: int) -> None:
        """The next process finds all below this offset, but for what was deleted; and nothing else."""
        if self.rng.random() < 0.3:
            self.die_soon()
            with suppress(CrashedError):
                self._open()
            self._storage = self._storage.after_kill()
        log = self._log = self._open()
        found = {int.from_bytes(each[:8]): bytes(each[_SENT:]) for each in every_batch(log)}
        assert log.findings.damaged == ()
        assert log.log_start_offset <= max(self._deleted, log.end_offset if expected <= self._deleted else 0)
        assert {each: self._there[each] for each in range(self._deleted, expected)}.items() <= found.items()
        assert found.items() <= {**self._pending, **self._there}.items()
        self._there = found
        self._deleted = log.log_start_offset
        self._synced = min(max(self._synced, log.synced.offset), log.end_offset)


@pytest.mark.parametrize("first", range(0, 400, _HISTORIES))
def test_what_was_synced_is_there_after_anything(first: int) -> None:
    for number in range(first, first + _HISTORIES):
        history = _History(number)
        try:
            history.run()
        except BaseException as fault:
            fault.add_note(f"history {number}: {', '.join(history.did)}")
            raise
