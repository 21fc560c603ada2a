"""T10, the cleaner against a short reference: random histories of keys, tombstones, transactions, passes, restarts."""

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.cleaner.cleaning import Memory
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.results import Origin
from ottla.wire.batch import CONTROL_FLAG
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, encode_batch
from tests.log.batches import NOW_MS
from tests.log.cleaner.passes import COMPACT, MEMORY, batches, begin, clean, records
from tests.log.logs import TP, committed_offsets, end

_RETENTION_MS = COMPACT.delete_retention_ms
#: Room for three keys: a pass often ends before the log does.
_TIGHT = Memory(4 * 24, 0.9, 100)

_KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
_VALUES = st.sampled_from([None, b"1", b"22"])
_ROWS = st.lists(st.tuples(_KEYS, _VALUES), min_size=1, max_size=3)
_PRODUCERS = st.sampled_from([7, 8])
_STEPS = st.one_of(
    st.tuples(st.just("plain"), _ROWS),
    st.tuples(st.just("write"), _PRODUCERS, _ROWS),
    st.tuples(st.just("end"), _PRODUCERS, st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.sampled_from([0, 1, _RETENTION_MS - 1, _RETENTION_MS])),
    st.tuples(st.just("restart"), st.booleans()),
)


@dataclass
class _Batch:
    """A batch of data as the reference knows it."""

    end_offset: int
    rows: dict[int, tuple[bytes, bytes | None]]
    producer_id: int | None = None
    is_aborted: bool = False
    horizon_ms: int | None = None


@dataclass
class _Reference:
    """What should be in the log."""

    batches: list[_Batch] = field(default_factory=list)
    open: dict[int, list[_Batch]] = field(default_factory=dict)

    def clean(self, first_dirty: int, end_offset: int, now_ms: int) -> None:
        """A pass whose map knows what comes between the two."""
        newest = {
            key: offset
            for batch in self.batches
            for offset, (key, _) in batch.rows.items()
            if first_dirty <= offset < end_offset and not batch.is_aborted
        }
        for batch in self.batches:
            if batch.is_aborted:
                batch.rows.clear()
            for offset, (key, value) in tuple(batch.rows.items()):
                over = batch.horizon_ms is not None and batch.horizon_ms <= now_ms and value is None
                if offset < end_offset and (offset < newest.get(key, -1) or over):
                    del batch.rows[offset]
            if batch.horizon_ms is None and any(value is None for _, value in batch.rows.values()):
                batch.horizon_ms = now_ms + _RETENTION_MS


class _Story:
    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.storage = MemoryStorage()
        self.log = PartitionLog.open(TP, self.storage, replace(COMPACT, transaction_verification=False), NOW_MS)
        self.reference = _Reference()
        self.now_ms = NOW_MS
        self.sequences: dict[int, int] = {}

    def write(self, rows: list[tuple[bytes, bytes | None]], producer_id: int | None = None) -> None:
        """A batch, perhaps of a transaction."""
        ours = [Record(number, NOW_MS + number, key, value) for number, (key, value) in enumerate(rows)]
        packed = encode_batch(ours)
        if producer_id is not None:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(rows)
            packed = encode_batch(
                ours, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
            )
        appended = self.log.append(packed, now_ms=NOW_MS, origin=Origin.COORDINATOR)
        assert appended.error is ErrorCode.NONE
        batch = _Batch(self.log.end_offset, {appended.base_offset + n: row for n, row in enumerate(rows)}, producer_id)
        self.reference.batches.append(batch)
        if producer_id is not None:
            self.reference.open.setdefault(producer_id, []).append(batch)

    def end(self, producer_id: int, *, commit: bool) -> None:
        """A marker, if there is something to end."""
        if producer_id in self.reference.open:
            assert end(self.log, commit=commit, producer_id=producer_id).error is ErrorCode.NONE
            for batch in self.reference.open.pop(producer_id):
                batch.is_aborted = not commit

    def clean(self, later_ms: int) -> None:
        """A pass, and the same in the reference."""
        self.now_ms += later_ms
        first_dirty = self.log.compaction.cleaned_offset or 0
        before = self._segments_end()
        if clean(self.log, self.now_ms, self.memory):
            cleaned = self.log.compaction.cleaned_offset
            assert cleaned is not None
            assert first_dirty < cleaned <= before
            # segments are cleaned whole: behind the map's last record only aborted ones and old tombstones go
            self._clean_reference(first_dirty, cleaned)

    def _segments_end(self) -> int:
        found = self.log.compaction.look(self.now_ms)
        return 0 if found is None else found.end_offset

    def _clean_reference(self, first_dirty: int, cleaned: int) -> None:
        bases = [each.base_offset for each in self.log._segments]
        reached = next(each for each in (*bases, self.log.end_offset) if each >= cleaned)
        untouched = [each for each in self.reference.batches if each.end_offset > reached]
        seen = _Reference([each for each in self.reference.batches if each.end_offset <= reached])
        seen.clean(first_dirty, cleaned, self.now_ms)
        self.reference.batches = [*seen.batches, *untouched]

    def restart(self, *, clean_stop: bool) -> None:
        """After kill -9, or after a stop in order. The checkpoint is lost in the first case."""
        recovery_point, cleaned = self.log.recovery_point, self.log.compaction.cleaned_offset
        if clean_stop:
            self.log.close()
            recovery_point = self.log.end_offset
        self.storage = self.storage.after_kill()
        config = self.log.config
        self.log = PartitionLog.open(
            TP, self.storage, config, self.now_ms, clean=clean_stop, recovery_point=recovery_point
        )
        findings = self.log.findings
        assert (findings.cuts, findings.damaged, findings.losses, findings.mended) == ((), (), (), ())
        assert findings.unexplained == ()
        self.log.compaction.cleaned_offset = cleaned

    def check(self) -> None:
        """The log holds what the reference does, and readers see it."""
        expected = {offset: row for batch in self.reference.batches for offset, row in batch.rows.items()}
        assert {each.offset: (each.key, each.value) for each in records(self.log)} == expected
        stable = self.log.last_stable_offset
        offsets = set(committed_offsets(self.log))
        wanted = {
            offset
            for batch in self.reference.batches
            if not batch.is_aborted
            for offset in batch.rows
            if offset < stable
        }
        assert wanted <= offsets
        aborted = {offset for batch in self.reference.batches if batch.is_aborted for offset in batch.rows}
        assert not aborted & offsets
        self._check_markers()

    def _check_markers(self) -> None:
        """Every batch of a transaction that has ended is followed by its marker."""
        waiting: dict[int, int] = {}
        for _, header in batches(self.log):
            if header.attributes & CONTROL_FLAG:
                waiting.pop(header.producer_id, None)
            elif header.is_transactional:
                waiting.setdefault(header.producer_id, header.base_offset)
        assert waiting.keys() == self.reference.open.keys()


@settings(max_examples=150, deadline=None)
@given(st.lists(_STEPS, max_size=40), st.sampled_from([MEMORY, _TIGHT]))
def test_what_stays_is_what_the_reference_keeps(steps: list[tuple[object, ...]], memory: Memory) -> None:
    story = _Story(memory)
    for step in steps:
        match step:
            case ("plain", list(rows)):
                story.write(rows)
            case ("write", int(producer_id), list(rows)):
                story.write(rows, producer_id)
            case ("end", int(producer_id), bool(commit)):
                story.end(producer_id, commit=commit)
            case ("roll",):
                story.log.roll(NOW_MS)  # a broker does so for a batch that it then writes
                story.write([(b"d", b"1")])
            case ("clean", int(later_ms)):
                story.clean(later_ms)
            case ("restart", bool(clean_stop)):
                story.restart(clean_stop=clean_stop)
        story.check()
    for producer_id in tuple(story.reference.open):
        story.end(producer_id, commit=True)
    story.log.roll(NOW_MS)
    while begin(story.log, story.now_ms, memory) is not None:
        story.log.compaction.end(None)
        story.clean(0)
        story.check()
    keys = [each.key for each in records(story.log)]
    assert len(keys) == len(set(keys))
