"""T10: a pass that dies at any of its calls leaves the old or the new, whoever comes next."""

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import pytest

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.cleaner.swap import Swap
from ottla.log.config import TimestampType
from ottla.log.memory import CrashedError, MemoryStorage
from ottla.log.names import CLEANED, SWAP
from ottla.log.partition import PartitionLog
from ottla.log.results import Isolation, Origin
from ottla.wire.batch import iter_headers
from ottla.wire.records import Record, encode_batch
from tests.log.batches import NOW_MS
from tests.log.cleaner.passes import COMPACT, MEMORY, batches, begin, clean, clean_all, put, records
from tests.log.logs import TP, committed_offsets, end, open_log

_CONFIG = replace(COMPACT, transaction_verification=False)
_LATER = NOW_MS + 10 * COMPACT.delete_retention_ms


def _write(log: PartitionLog, producer_id: int, sequence: int, key: bytes) -> None:
    batch = encode_batch(
        [Record(0, NOW_MS, key, b"%d" % producer_id)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    assert log.append(batch, now_ms=NOW_MS, origin=Origin.COORDINATOR).base_offset >= 0


def _filled(storage: MemoryStorage) -> PartitionLog:
    """A log of many segments, with keys that come again, tombstones, and transactions of both outcomes."""
    log = open_log(storage, _CONFIG)
    for number in range(8):
        put(log, b"%d" % (number % 4), b"value %d" % number)
        _write(log, 7, number, b"t%d" % (number % 3))
        _write(log, 8, number, b"u%d" % (number % 3))
        put(log, b"%d" % (number % 5), None)
        end(log, commit=False, producer_id=7)
        end(log, commit=True, producer_id=8)
    log.flush()
    assert len({each.base_offset for each in log._segments}) >= 10
    return log


class _Death:
    """The storage dies at a call that changes something."""

    def __init__(self, storage: MemoryStorage, at: int) -> None:
        self.left = at
        self.storage = storage
        storage.refuses = self

    def __call__(self, action: str, name: str) -> bool:
        if action not in ("read", "names", "map", "modified_ms"):
            self.left -= 1
            if self.left < 0:
                raise CrashedError(f"died before {action} {name}")
        return False


class _Refusal:
    """The storage refuses one call."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, action: str, name: str) -> bool:
        if action not in ("names", "modified_ms"):
            self.left -= 1
        return self.left == -1 and action not in ("names", "modified_ms")


def _deaths(make: Callable[[], MemoryStorage], work: Callable[[MemoryStorage], object]) -> Iterator[MemoryStorage]:
    """The storage at each call of `work` at which a process may die."""
    at = 0
    while True:
        storage = make()
        death = _Death(storage, at)
        try:
            work(storage)
        except CrashedError:
            yield storage
            at += 1
        else:
            assert death.left >= 0
            return


def _again(storage: MemoryStorage, recovery_point: int) -> PartitionLog:
    return PartitionLog.open(TP, storage, _CONFIG, NOW_MS, recovery_point=recovery_point, log_start_offset=0)


class _Case:
    """A log before its pass, and what is in it before and after."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.before = _filled(self.storage)
        self.point = self.before.recovery_point
        self.old = {each.offset: each for each in records(self.before)}
        self.committed = set(committed_offsets(self.before))
        done = self.opened()
        assert clean(done, _LATER)
        self.new = {each.offset: each for each in records(done)}
        assert 5 < len(self.new) < len(self.old) / 2
        self.kept = set(committed_offsets(done))

    def opened(self) -> PartitionLog:
        return _again(self.storage.after_kill(), self.point)

    def run(self, storage: MemoryStorage) -> None:
        """The pass, in a process that has just started."""
        refuses, storage.refuses = storage.refuses, None
        log = _again(storage, self.point)
        storage.refuses = refuses
        assert clean(log, _LATER)

    def check(self, storage: MemoryStorage, *, go_on: bool = False) -> None:
        """The next process opens it: nothing is lost, nothing told, nothing left lying about, and a pass ends it."""
        log = _again(storage, self.point)
        found = log.findings
        assert (found.cuts, found.damaged, found.losses, found.unexplained, found.mended) == ((), (), (), (), ())
        assert found.rebuilt == ()
        assert not [name for name in storage.names() if name.endswith((CLEANED, SWAP, ".deleted"))]
        left = {each.offset: each for each in records(log)}
        assert self.new.items() <= left.items() <= self.old.items()
        assert log.end_offset == self.before.end_offset
        assert self.new.keys() & self.committed <= set(committed_offsets(log))
        assert not set(committed_offsets(log)) & (self.old.keys() - self.committed)
        assert log.last_stable_offset == log.end_offset
        sequences = {each.producer_id: each.last_sequence for each in log.producers.active()}
        assert sequences == {each.producer_id: each.last_sequence for each in self.before.producers.active()}
        if go_on:
            clean_all(log, _LATER)
            assert {each.offset: each for each in records(log)} == self.new


@pytest.fixture(scope="module")
def case() -> _Case:
    return _Case()


def test_a_pass_that_is_killed_at_any_call(case: _Case) -> None:
    count = 0
    for storage in _deaths(case.storage.after_kill, case.run):
        case.check(storage.after_kill(), go_on=True)
        count += 1
    assert count > 100


def test_a_pass_in_the_middle_of_which_the_power_fails(case: _Case) -> None:
    rng = random.Random(1)

    def on_device() -> MemoryStorage:
        storage = case.storage.after_kill()
        for name in storage.names():  # the snapshots of old rolls too
            storage.open(name).sync()
        storage.sync_names()
        return storage

    for storage in _deaths(on_device, case.run):
        lost = storage.after_power_loss(
            lambda name, synced, size: rng.choice((synced, size, rng.randint(synced, size))),
            lambda name: rng.random() < 0.5,
        )
        case.check(lost)


def test_a_start_that_is_killed_while_it_finishes_a_pass(case: _Case) -> None:
    seen = set()
    for storage in _deaths(case.storage.after_kill, case.run):
        left = storage.after_kill()
        names = tuple(each for each in left.names() if each.endswith((CLEANED, SWAP)))
        if names in seen or not any(each.endswith(SWAP) for each in names):
            continue
        seen.add(names)
        for again in _deaths(left.after_kill, lambda storage: _again(storage, case.point)):
            case.check(again.after_kill())
    assert len(seen) > 10


@pytest.mark.parametrize("change", [8, 256])
def test_a_changed_base_offset_of_a_segment_that_is_to_take_the_place_of_others_costs_no_other(
    case: _Case, change: int
) -> None:
    """No CRC covers it. The segments up to there were deleted: good ones, at times all of them."""
    seen = 0
    for storage in _deaths(case.storage.after_kill, case.run):
        left = storage.after_kill()
        logs = [each for each in left.names() if each.endswith(".log" + SWAP)]
        if any(each.endswith(CLEANED) for each in left.names()) or not logs:
            continue
        content = bytearray(left.read(logs[0]) or b"")
        position, header = list(iter_headers(content))[-1]
        content[position : position + 8] = (header.base_offset + change).to_bytes(8, "big")
        left.write(logs[0], bytes(content))
        before = left.names()
        with pytest.raises(StorageError, match="is not from them"):
            _again(left, case.point)
        assert left.names() == before
        seen += 1
    assert seen > 3


def test_a_log_that_is_gone_after_it_got_its_name_is_told_where_its_indexes_have_theirs_not_yet(case: _Case) -> None:
    seen = set()
    for storage in _deaths(case.storage.after_kill, case.run):
        left = storage.after_kill()
        names = left.names()
        logs = {each.removesuffix(SWAP) for each in names if each.endswith(".log" + SWAP)}
        victims = {f"{each[:20]}.log" for each in names if each.endswith(SWAP)} - logs
        if any(each.endswith(CLEANED) for each in names) or not victims:
            continue
        (victim,) = victims
        left.delete(victim)
        holes = _again(left, case.point).findings.damaged
        assert any(first <= int(victim[:20]) < end for first, end in holes)
        seen.add(victim)
    assert len(seen) > 3


@pytest.mark.parametrize("is_given_up", [False, True])
def test_a_pass_that_is_killed_while_it_takes_its_segment_back_has_lost_nothing(case: _Case, is_given_up: bool) -> None:
    """It is announced: the new one's indexes must not look as if their log was gone."""

    def work(storage: MemoryStorage) -> None:
        refuses, storage.refuses = storage.refuses, None
        log = _again(storage, case.point)
        cleaning = begin(log, _LATER, MEMORY)
        assert cleaning is not None
        with contextlib.nullcontext() if is_given_up else pytest.raises(StorageError, match="refuses to sync"):
            for step in cleaning.steps():
                if isinstance(step, Swap) and step.is_accepted:
                    break
                if isinstance(step, Swap):
                    log.compaction.turn(step)
                    assert log.compaction.is_switching
                    storage.refuses = None if is_given_up else _refuse_second_sync_of_names(storage, refuses)
        if is_given_up:
            storage.refuses = refuses
            cleaning.give_up()
        assert not log.compaction.is_switching
        assert not [name for name in storage.names() if name.endswith((CLEANED, SWAP))]

    count = 0
    for storage in _deaths(case.storage.after_kill, work):
        for left in (storage.after_kill(), *_without_power(storage, count)):
            log = _again(left, case.point)
            assert (log.findings.losses, log.findings.damaged, log.findings.unexplained) == ((), (), ())
            assert case.new.items() <= {each.offset: each for each in records(log)}.items() <= case.old.items()
        count += 1
    assert count > 4


def _refuse_second_sync_of_names(
    storage: MemoryStorage, then: Callable[[str, str], bool] | None
) -> Callable[[str, str], bool]:
    """It ends the announcement; behind it `then` is asked."""
    left = 2

    def refuses(action: str, _name: str) -> bool:
        nonlocal left
        left -= action == "sync_names"
        if left == 0:
            storage.refuses = then
        return left == 0

    return refuses


def _without_power(storage: MemoryStorage, seed: int) -> Iterator[MemoryStorage]:
    """What was synced is left, and of the names that were not synced any of them."""
    drawn = random.Random(seed)
    for _ in range(3):
        yield storage.after_power_loss(
            keep=lambda name, synced, size: size, keep_name=lambda name: drawn.random() < 0.5
        )


def test_a_disk_that_refuses_any_call_leaves_the_log_whole_and_the_next_pass_ends_it(case: _Case) -> None:
    at = 0
    while True:
        storage = case.storage.after_kill()
        log = _again(storage, case.point)
        storage.refuses = refusal = _Refusal(at)
        with contextlib.suppress(StorageError):
            clean(log, _LATER)
        storage.refuses = None
        if refusal.left >= 0:
            break
        left = {each.offset: each for each in records(log)}
        assert case.new.items() <= left.items() <= case.old.items(), at
        case.check(storage.after_kill())
        clean_all(log, _LATER)
        assert {each.offset: each for each in records(log)} == case.new, at
        assert not [name for name in storage.names() if name.endswith((CLEANED, SWAP))]
        at += 1
    assert at > 100


def test_retention_that_is_killed_while_it_deletes_cleaned_segments(case: _Case) -> None:
    config = replace(_CONFIG, cleanup_policy=frozenset({"compact", "delete"}))
    count = 0

    def work(storage: MemoryStorage) -> None:
        refuses, storage.refuses = storage.refuses, None
        log = _again(storage, case.point)
        assert clean(log, _LATER)
        log.config = config
        log.delete_records_before(log._segments[2].base_offset)
        storage.refuses = refuses
        assert log.retire(NOW_MS)
        assert log.delete_retired() == 2

    for storage in _deaths(case.storage.after_kill, work):
        left = storage.after_kill()
        log = _again(left, case.point)
        assert (log.findings.losses, log.findings.mended, log.findings.damaged) == ((), (), ())
        assert {each.offset: each for each in records(log)}.items() <= case.new.items()
        assert not [name for name in left.names() if name.endswith((CLEANED, SWAP, ".deleted"))]
        count += 1
    assert count > 8


def test_names_that_the_disk_refused_are_given_later_though_the_topic_is_not_compacted_any_more(case: _Case) -> None:
    storage = case.storage.after_kill()
    log = _again(storage, case.point)
    storage.refuses = lambda action, name: action == "rename" and name.endswith(".index" + SWAP)
    with pytest.raises(StorageError, match="refuses to rename"):
        clean(log, _LATER)
    storage.refuses = None
    log.config = replace(_CONFIG, cleanup_policy=frozenset({"delete"}), retention_bytes=0)
    assert not log.retire(NOW_MS)  # it waits for the names
    left = records(log)
    assert clean(log, _LATER)
    assert not log.compaction.is_switching
    assert records(log) == left
    assert not [name for name in storage.names() if name.endswith((CLEANED, SWAP))]
    assert log.retire(NOW_MS)


def test_readers_notice_nothing(case: _Case) -> None:
    log = case.opened()
    reads = [log.read(offset, 300, isolation=Isolation.READ_COMMITTED) for offset in range(log.end_offset)]
    contents = [[piece.read() for piece in read.slices] for read in reads]
    cleaning = begin(log, _LATER, MEMORY)
    assert cleaning is not None
    for step in cleaning.steps():
        if isinstance(step, Swap):
            log.compaction.turn(step)
        assert [[piece.read() for piece in read.slices] for read in reads] == contents
        assert case.new.items() <= {each.offset: each for each in records(log)}.items()
        assert case.new.keys() & case.committed <= set(committed_offsets(log))
    log.compaction.end(cleaning)
    assert set(committed_offsets(log)) == case.kept


def test_what_retention_has_deleted_beside_a_pass_does_not_come_back(case: _Case) -> None:
    """Whatever step the pass was at. It had written a new segment by then, and a start would put that into the log."""
    before = 0
    while True:
        storage = case.storage.after_kill()
        log = _again(storage, case.point)
        cleaning = begin(log, _LATER, MEMORY)
        assert cleaning is not None
        steps = cleaning.steps()
        before += 1
        for step in islice(steps, before):
            if isinstance(step, Swap):
                log.compaction.turn(step)
        log.config = replace(_CONFIG, cleanup_policy=frozenset({"compact", "delete"}))
        log.delete_records_before(log._segments.active.base_offset)
        if not log.retire(NOW_MS):
            assert log.compaction.is_switching
            break
        log.delete_retired()
        with contextlib.suppress(StorageError):
            for step in steps:
                if isinstance(step, Swap):
                    log.compaction.turn(step)
                assert _again(storage.after_kill(), case.point).log_start_offset == log.log_start_offset, before
    assert before > 20


def test_retention_takes_segments_away_from_a_pass(case: _Case) -> None:
    storage = case.storage.after_kill()
    log = _again(storage, case.point)
    cleaning = begin(log, _LATER, MEMORY)
    assert cleaning is not None
    steps = cleaning.steps()
    next(steps)
    log.config = replace(_CONFIG, cleanup_policy=frozenset({"compact", "delete"}))
    assert log.delete_records_before(20).low_watermark == 20
    assert log.retire(NOW_MS)
    log.delete_retired()
    start = log.log_start_offset
    with pytest.raises(StorageError, match="no such file"):
        for step in steps:
            assert not isinstance(step, Swap)
    log.compaction.end(cleaning)
    assert not [name for name in storage.names() if name.endswith(SWAP)]
    expected = {offset: each for offset, each in case.old.items() if offset >= start}
    assert {each.offset: each for each in records(log)} == expected
    clean_all(log, _LATER)
    assert {each.offset for each in records(log)} == {offset for offset in case.new if offset >= start}


def test_a_swap_whose_segments_are_gone_is_withdrawn(case: _Case) -> None:
    storage = case.storage.after_kill()
    log = _again(storage, case.point)
    cleaning = begin(log, _LATER, MEMORY)
    assert cleaning is not None
    for step in cleaning.steps():
        if isinstance(step, Swap):
            log.config = replace(_CONFIG, cleanup_policy=frozenset({"delete"}))  # it is no compacted topic any more
            log.compaction.turn(step)
            assert not step.is_accepted
    log.compaction.end(cleaning)
    assert log.compaction.cleaned_offset is None
    assert not [name for name in storage.names() if name.endswith((CLEANED, SWAP))]
    assert {each.offset: each for each in records(log)} == case.old


def test_a_damaged_swap_is_told_and_nothing_is_deleted(case: _Case) -> None:
    storage = case.storage.after_kill()
    name = f"{0:020}.log"
    storage.write(name + SWAP, bytes(storage.files[name].content[:-1]))
    names = storage.names()
    with pytest.raises(StorageError, match=r"is damaged .* remove the files that end in \.swap"):
        _again(storage, case.point)
    assert storage.names() == names


def test_a_pass_stops_at_a_damaged_batch_and_names_the_file(case: _Case) -> None:
    storage = case.storage.after_kill()
    log = _again(storage, case.point)
    victim = sorted(name for name in storage.files if name.endswith(".log"))[2]
    storage.files[victim].content[70] ^= 1
    with pytest.raises(CorruptDataError, match="CRC"):
        clean(log, _LATER)
    assert len(batches(log)) > 0


def test_a_log_with_a_hole_is_left_to_a_person(case: _Case) -> None:
    storage = case.storage.after_kill()
    victim = sorted(name for name in storage.files if name.endswith(".log"))[1]
    storage.files[victim].content[70] ^= 1
    del storage.files[victim].content[-10:]
    log = _again(storage, case.point)
    assert log.findings.damaged
    assert log.compaction.look(_LATER) is None


def test_times_are_found_in_a_cleaned_segment() -> None:
    config = replace(_CONFIG, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    log = open_log(config=config)
    batch = encode_batch([Record(number, 0, key, b"v") for number, key in enumerate((b"a", b"b", b"c"))])
    for now_ms in (NOW_MS, NOW_MS + 5, NOW_MS + 9):
        log.append(batch, now_ms=now_ms)
    put(log, b"a", b"new", now_ms=NOW_MS + 20)
    log.roll(NOW_MS)
    assert clean(log)
    left = [each.offset for each in records(log)]
    assert left == [7, 8, 9]
    for timestamp_ms, offset in ((NOW_MS, 7), (NOW_MS + 9, 7), (NOW_MS + 10, 9)):
        found = log.offset_for_timestamp(timestamp_ms)
        assert found is not None
        assert found.offset == offset
    newest = log.offset_for_timestamp(-3)
    assert newest is not None
    assert (newest.offset, newest.timestamp_ms) == (9, NOW_MS + 20)
