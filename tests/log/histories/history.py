"""One log's life, drawn from a number: producers, transactions, readers, and a broker whose disk and machine fail.

A broker's event loop and its thread for files are played, too: what waits for the disk in a thread does so while others
append and read, and a checkpoint that was put together may be written later.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import islice
from random import Random
from typing import NamedTuple

from ottla.base.errors import StorageError
from ottla.log.cleaner.cleaning import Cleaning, Memory
from ottla.log.cleaner.swap import Swap
from ottla.log.config import LogConfig
from ottla.log.flush import FlushPlan
from ottla.log.memory import CrashedError
from ottla.log.partition import PartitionLog
from ottla.log.results import Appended
from ottla.log.txn_index import AbortsSeal
from ottla.log.witnesses import Outside
from ottla.wire.errors import ErrorCode
from tests.log.batches import NOW_MS
from tests.log.histories.disk import Disk
from tests.log.histories.expected import Expected, Promise
from tests.log.histories.readers import Seen, tombstone
from tests.log.histories.senders import MOST_IN_FLIGHT, Sender, Sent
from tests.log.logs import TP

_NEVER = 2**62
#: A flush has some segments only; no history has more than are done with so many.
_MOST_FLUSHES = 20
_TOPIC_ID = bytes(range(16))
#: After so many answers that nobody can know whether a batch was written, its producer gives it up.
_MOST_DOUBTS = 6
_MEMORIES = (Memory(24_000, 0.9, 4_096), Memory(4 * 24, 0.9, 100))


class Checkpoint(NamedTuple):
    """What a broker's files say of a log (`PartitionOffsets`)."""

    number: int
    log_start_offset: int
    recovery_point: int
    aborts: dict[int, AbortsSeal]
    cleaned_offset: int | None


class History:
    """See the module. `run` raises AssertionError when something is not as it must be; `did` says what happened.

    `owes_snapshots`: a snapshot of producers is never written where it is taken, as if there were very many of them.
    `in_parts`: batches are written in parts, as if they were large, and the broker goes on with other work in between.
    """

    def __init__(self, number: int, *, owes_snapshots: bool = False, in_parts: bool = False) -> None:
        rng = self.rng = Random(number)
        self._in_parts = in_parts
        #: The loop goes on while a thread waits for the disk, or between two parts of a batch.
        self._is_busy = False
        #: Batches that were written in parts, or were to be: a process that dies closes nothing.
        self._begun: list[Generator[None, None, Appended]] = []
        self._owes_snapshots = owes_snapshots
        self.did: list[str] = []
        self.promise = rng.choice((Promise.ALL, Promise.ALL, Promise.AFTER_KILLS, Promise.SYNCED))
        self._flush_messages = self._draw_flush_messages()
        self._policy = rng.choice((frozenset({"delete"}), frozenset({"compact"}), frozenset({"compact", "delete"})))
        self._segment_bytes = rng.choice((120, 260, 500))
        self._retention_bytes = rng.choice((-1, -1, 0, 150, 600))
        self._delete_retention_ms = rng.choice((0, 20, 86_400_000))
        self._memory = rng.choice(_MEMORIES)
        self._now_ms = NOW_MS
        self._leader_epoch = 0
        may_have_transactions = self.promise is not Promise.SYNCED
        versions = (None, 1, 2) if may_have_transactions else (None,)
        self._senders = [Sender(7 + each, rng.choice(versions)) for each in range(rng.choice((1, 2, 3)))]
        self._values = 0
        self._expected = Expected(self.promise, self._senders, is_compacted="compact" in self._policy)
        self._checkpoint: Checkpoint | None = None
        self._number = 0
        self._bases: tuple[int, ...] = ()
        self._is_clean = False
        self._plans: list[Callable[[], None]] = []
        self._cleaning: Cleaning | None = None
        self._steps: Iterator[int | Swap] = iter(())
        self._disk = Disk(rng, self._go_on_meanwhile)
        self._log = self._open()

    def _draw_flush_messages(self) -> int:
        if self.promise is Promise.ALL:
            return 1
        return self.rng.choice((2, 4, _NEVER)) if self.promise is Promise.SYNCED else _NEVER

    @property
    def _config(self) -> LogConfig:
        return LogConfig(
            flush_messages=self._flush_messages,
            segment_bytes=self._segment_bytes,
            retention_bytes=self._retention_bytes,
            index_interval_bytes=0,
            cleanup_policy=self._policy,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=self._delete_retention_ms,
        )

    def run(self) -> None:
        """Live, and then have everybody get what he waits for."""
        steps: tuple[Callable[[], object], ...] = (
            *(self.send,) * 8,
            *(self.send_again,) * 3,
            *(self.end_transaction,) * 4,
            *(self.sync,) * 4,
            *(self.clean,) * 5,
            *(self.go_on_with_a_plan,) * 3,
            self.plan_sync,
            self.plan_flush,
            *(self.plan_flush, self.give_up_a_plan) * self._owes_snapshots,
            self.plan_checkpoint,
            *(self.write_checkpoint,) * 2,
            self.roll,
            self.delete_records,
            *(self.retire,) * 2,
            self.delete_retired,
            self.change_settings,
            self.refuse,
            *(self.refuse_nothing,) * 3,
            *(self.die_soon,) * 2,
            self.kill,
            self.lose_power,
            self.stop,
        )
        for _ in range(self.rng.choice((40, 80, 160))):
            self._now_ms += 1
            self._take(self.rng.choice(steps))
            with self._disk.at_rest():
                self._expected.look(self._log)
        self._disk.mend()
        self._settle()

    def _take(self, step: Callable[[], object]) -> None:
        self.did.append(step.__name__)
        try:
            step()
        except StorageError as fault:
            self.did.append(f"  {fault}")
        except CrashedError as fault:
            self.did.append(f"  killed at {fault}")
            self.rng.choice((self.kill, self.lose_power))()

    def _go_on_meanwhile(self) -> None:
        if self._is_busy:
            return
        step = self.rng.choice((self.send, self.send, self.send_again, self.end_transaction, self.roll))
        self.did.append(f"  meanwhile {step.__name__}")
        self._is_busy = True
        try:
            step()
        except StorageError as fault:
            self.did.append(f"  {fault}")
        finally:
            self._is_busy = False

    # ---- producers

    def send(self) -> None:
        sender = self.rng.choice(self._senders)
        if sender.ending is not None:
            self._write_marker(sender)
        elif len(sender.in_flight) < MOST_IN_FLIGHT:
            self._values += 1
            key, timestamp_ms = b"k%d" % self.rng.randint(0, 3), NOW_MS + self._values
            value = tombstone(timestamp_ms) if self.rng.random() < 0.2 else b"%d" % self._values
            sent = sender.next_batch(self.rng.choice((1, 1, 1, 2, 3)), key, value, timestamp_ms)
            sender.is_cut_off = sender.is_cut_off or self.rng.random() < 0.1
            if not sender.is_cut_off:
                self._append(sender, sent)

    def send_again(self) -> None:
        sender = self.rng.choice(self._senders)
        if sender.ending is not None:
            self._write_marker(sender)
        else:
            self._send_all_again(sender)

    def _send_all_again(self, sender: Sender) -> None:
        sender.is_cut_off = False
        for sent in tuple(sender.in_flight):
            if sent in sender.in_flight:
                self._append(sender, sent)

    def end_transaction(self) -> None:
        sender = self.rng.choice(self._senders)
        if sender.open is not None and sender.ending is None:
            is_whole = not sender.in_flight
            if not is_whole and self.rng.random() < 0.5:
                return
            sender.begin_end(commit=is_whole and self.rng.random() < 0.7)
        if sender.ending is not None:
            self._write_marker(sender)

    def _append(self, sender: Sender, sent: Sent) -> None:
        self.did.append(f"  {sender.producer_id}, epoch {sender.epoch}: {sent.sequence} to {sent.value!r}")
        offset = self._log.end_offset
        self._expected.begins(offset, [Seen(sent.key, sent.value)] * sent.count)
        appended = self._appended(sender, sent)
        self.did.append(f"    {appended.error.name}, {appended.base_offset} {appended.message}")
        if appended.error is not ErrorCode.NONE:
            self._refused(sender, sent, appended.error)
            return
        if appended.duplicate:
            self._expected.is_there(appended.base_offset, sent.value)
        else:
            assert appended.base_offset == offset
            self._expected.appended()
        sent.end_offset = appended.last_offset + 1
        if not self._log.synced.is_due:
            self._answer(sender, sent)

    def _appended(self, sender: Sender, sent: Sent) -> Appended:
        if not self._in_parts or self._is_busy or self.rng.random() < 0.3:
            return sender.append(self._log, sent, self._leader_epoch, self._now_ms)
        upkeep = self.clean, self.delete_records, self.retire, self.delete_retired, self.change_settings
        syncs = self.sync, self.plan_sync, self.plan_flush, self.go_on_with_a_plan, self.write_checkpoint
        work = sender.append_in_parts(self._log, sent, self._leader_epoch, self._now_ms)
        self._begun.append(work)
        while True:
            try:
                next(work)
            except StopIteration as end:
                appended: Appended = end.value
                return appended
            self._is_busy = True
            try:
                for step in self.rng.sample((*upkeep, *syncs), self.rng.randint(0, 3)):
                    self.did.append(f"    between two parts {step.__name__}")
                    with suppress(StorageError):
                        step()
            finally:
                self._is_busy = False

    def _answer(self, sender: Sender, sent: Sent) -> None:
        """The answer may be lost. One that comes before that of an earlier batch is played as a lost one, too."""
        if sender.in_flight and sent is sender.in_flight[0] and self.rng.random() < 0.85:
            sender.in_flight.remove(sent)

    def _refused(self, sender: Sender, sent: Sent, error: ErrorCode) -> None:
        is_first = sent is sender.in_flight[0]
        if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if is_first and sender.is_transactional:
                assert sender.may_be_torn, "out of order"
                sender.begin_end(commit=False)
            elif is_first:
                assert self.promise is Promise.SYNCED, "out of order"
                sender.take_new_epoch()
        elif error is ErrorCode.KAFKA_STORAGE_ERROR:
            sent.doubts += 1
            if sent.doubts == _MOST_DOUBTS:
                sender.in_flight.remove(sent)
        else:
            raise AssertionError(error.name)

    def _write_marker(self, sender: Sender) -> None:
        offset = self._log.end_offset
        self._expected.begins(offset, [Seen(None, None)])
        appended = sender.append_marker(self._log, self._leader_epoch, self._now_ms)
        self.did.append(f"  {sender.producer_id}: marker at {offset}, commit: {sender.ending} {appended.message}")
        assert appended.error is ErrorCode.NONE
        self._expected.appended()
        self._log.synced.sync_due()
        if self.rng.random() < 0.8:  # else the answer is lost
            sender.ended()

    # ---- the broker

    def sync(self) -> None:
        plan = self._log.synced.plan()
        waiting = [(sender, each) for sender in self._senders for each in sender.in_flight if each.end_offset >= 0]
        self._disk.in_thread(plan.sync)
        self._log.synced.reached(plan.offset)
        for sender, sent in waiting:
            if sent.end_offset <= plan.offset:
                self._answer(sender, sent)

    def plan_sync(self) -> None:
        log = self._log
        self._plan(log.synced.plan(), lambda plan: log.synced.reached(plan.offset))

    def plan_flush(self) -> None:
        self._plan(self._log.flush_plan(), self._log.mark_flushed)

    def _plan(self, plan: FlushPlan, done: Callable[[FlushPlan], None]) -> None:
        def go_on() -> None:
            self._disk.in_thread(plan.sync)
            done(plan)

        self._plans.append(go_on)

    def plan_checkpoint(self) -> None:
        checkpoint = self._draft()
        self._plans.append(lambda: self._write(checkpoint))

    def write_checkpoint(self) -> None:
        self._write(self._draft())

    def _draft(self) -> Checkpoint:
        log, self._number = self._log, self._number + 1
        return Checkpoint(
            self._number, log.log_start_offset, log.flushed_offset, log.aborts, log.compaction.cleaned_offset
        )

    def _write(self, checkpoint: Checkpoint) -> None:
        if self._checkpoint is None or checkpoint.number > self._checkpoint.number:
            self._checkpoint = checkpoint
            self._expected.deleted = checkpoint.log_start_offset

    def go_on_with_a_plan(self) -> None:
        if self._plans:
            self._plans.pop(self.rng.randrange(len(self._plans)))()

    def give_up_a_plan(self) -> None:
        """Whoever has it in hand is stopped, as the cleaner may be."""
        if self._plans:
            del self._plans[self.rng.randrange(len(self._plans))]

    def roll(self) -> None:
        self._log.roll(self._now_ms)

    def delete_records(self) -> None:
        log = self._log
        log.delete_records_before(self.rng.randint(log.log_start_offset, log.high_watermark))
        if self.rng.random() < 0.7:
            self.write_checkpoint()

    def retire(self) -> None:
        self._log.retire(self._now_ms)

    def delete_retired(self) -> None:
        self._disk.in_thread(self._log.delete_retired)

    def change_settings(self) -> None:
        self._retention_bytes = self.rng.choice((-1, -1, 0, 150, 600))
        self._flush_messages = self._draw_flush_messages()
        self._log.config = self._config

    def clean(self) -> None:
        """Begin a pass of the cleaner, or take some of its steps."""
        if not self._expected.is_compacted:
            return
        if self._cleaning is None:
            self._begin_to_clean()
            return
        try:
            is_over = not all(self._take_cleaning_step() for _ in range(self.rng.choice((1, 2, 5, 20))))
        except StorageError as fault:
            self.did.append(f"  {fault}")
            is_over = True
        if is_over:
            self._end_cleaning(self._cleaning)

    def _begin_to_clean(self) -> None:
        log = self._log
        log.compaction.prepare()
        try:
            end_offset = log.end_offset
            while log.flushed_offset < end_offset:
                plan = log.flush_plan()
                self._disk.in_thread(plan.sync)
                log.mark_flushed(plan)
            recovery_point, checkpoint = log.recovery_point, self._draft()
            for _ in log.compaction.gather():
                pass
            if self.rng.random() < 0.5:
                self._go_on_meanwhile()
            self._write(checkpoint)
            self._cleaning = log.compaction.begin(self._now_ms, self._memory, recovery_point)
        finally:
            if self._cleaning is None:
                log.compaction.end(None)
        if self._cleaning is not None:
            self._steps = self._cleaning.steps()

    def _take_cleaning_step(self) -> bool:
        step: list[int | Swap] = []
        self._disk.in_thread(lambda: step.extend(islice(self._steps, 1)))
        for swap in step:
            if isinstance(swap, Swap):
                self._log.compaction.turn(swap)
        return bool(step)

    def _end_cleaning(self, cleaning: Cleaning) -> None:
        self._cleaning, compaction = None, self._log.compaction
        try:
            if cleaning.cleaned_offset is None:
                self._disk.in_thread(cleaning.give_up)
        finally:
            compaction.end(cleaning)
        if cleaning.cleaned_offset is not None:
            self.write_checkpoint()

    # ---- faults

    def refuse(self) -> None:
        self.did.append(f"  {self._disk.refuse()}")

    def refuse_nothing(self) -> None:
        self._disk.mend()

    def die_soon(self) -> None:
        self._disk.die_soon()

    def kill(self) -> None:
        self._disk.kill()
        self._start(has_lost_power=False)

    def lose_power(self) -> None:
        if self.promise is Promise.AFTER_KILLS:
            self.kill()
            return
        self._disk.lose_power()
        self._start(has_lost_power=True)

    def stop(self) -> None:
        """In order; the machine may lose its power behind it."""
        self._disk.mend()
        self._log.close()
        self.write_checkpoint()
        self._is_clean, self._bases = True, self._log.compaction.bases
        self.rng.choice((self.kill, self.lose_power))()

    # ---- the next process

    def _open(self) -> PartitionLog:
        known, is_clean = self._checkpoint, self._is_clean
        log = PartitionLog.open(
            TP,
            self._disk.storage,
            self._config,
            self._now_ms,
            clean=is_clean,
            recovery_point=0 if known is None else known.recovery_point,
            log_start_offset=None if known is None else known.log_start_offset,
            topic_id=_TOPIC_ID,
            outside=Outside(
                is_known=known is not None,
                start_may_be_old=is_clean,
                leader_epoch=self._leader_epoch,
                aborts={} if known is None else known.aborts,
                bases=self._bases if is_clean else (),
                cleaned_offset=None if known is None else known.cleaned_offset,
            ),
        )
        if self._owes_snapshots:
            log._snapshots.few_producers = -1
        log.synced.sync_due()
        return log

    def _start(self, *, has_lost_power: bool) -> None:
        before = self._log
        kept = max(before.flushed_offset, before.synced.offset) if has_lost_power else before.end_offset
        self._plans.clear()
        self._cleaning = None
        for sender in self._senders:
            sender.is_cut_off = True
            sender.may_be_torn = sender.open is not None and (sender.may_be_torn or has_lost_power)
            for sent in sender.in_flight:
                sent.end_offset = -1
        while self.rng.random() < 0.3:
            self._disk.try_to_start(self._open, may_lose_power=has_lost_power)
            self._is_clean = False
        self._leader_epoch += 1
        self._log = log = self._open()
        self._is_clean = False
        self.did.append(f"  started: {log.log_start_offset} to {log.end_offset}, {kept} kept; {log.findings}")
        self._expected.started(log, before.log_start_offset, kept, has_lost_power=has_lost_power)

    # ---- the end

    def _settle(self) -> None:
        """Without faults everybody gets his answers in the end."""
        self.did.append("settle")
        for _ in range(3 * _MOST_DOUBTS):
            for sender in self._senders:
                if sender.open is not None and not sender.in_flight and sender.ending is None:
                    sender.begin_end(commit=True)
                if sender.ending is not None:
                    self._write_marker(sender)
                self._send_all_again(sender)
            self.sync()
        assert not any(each.in_flight or each.open for each in self._senders), "somebody waits for good"
        self._log.roll(self._now_ms)
        for _ in range(_MOST_FLUSHES):
            plan = self._log.flush_plan()
            plan.sync()
            self._log.mark_flushed(plan)
        assert not self._log.needs_flush, "retention would wait for a snapshot"
        self._expected.look(self._log)
