"""What must be in a log, and what must not: kept beside it, append by append, and compared with what readers get."""

from collections.abc import Sequence
from enum import Enum

from ottla.log.partition import PartitionLog
from tests.log.histories.readers import Seen, check_offsets, committed, is_tombstone, newest_epoch, records
from tests.log.histories.senders import Sender


class Promise(Enum):
    """What a log keeps."""

    #: With `flush.messages=1`: what was acknowledged, whatever happens.
    ALL = "flush.messages=1"
    #: By default: what was acknowledged, if only processes are killed.
    AFTER_KILLS = "kills only"
    #: By default, and with a larger `flush.messages`, the machine loses its power: what was synced.
    SYNCED = "loses power"


class Expected:
    """See the module. Every check raises AssertionError."""

    def __init__(self, promise: Promise, senders: Sequence[Sender], *, is_compacted: bool) -> None:
        self.is_compacted = is_compacted
        #: Where the log begins at least: a checkpoint says so.
        self.deleted = 0
        self._promise = promise
        self._senders = senders
        #: Everything that was appended and is not lost, by offset; and what is being appended, which may be there.
        self._there: dict[int, Seen] = {}
        self._pending: dict[int, Seen] = {}
        #: Where a reader could see a value; and where it stood at the end, in which leader epoch.
        self._visible: dict[bytes, int] = {}
        self._position: tuple[int, int] | None = None

    def begins(self, offset: int, records: Sequence[Seen]) -> None:
        """These are being appended."""
        self._pending = dict(enumerate(records, offset))

    def appended(self) -> None:
        """They are in the log, and were not there before."""
        for seen in self._pending.values():
            assert seen.value not in self._visible, f"{seen.value!r} was at {self._visible[seen.value]}"
        self._there |= self._pending
        self._pending = {}

    def is_there(self, offset: int, value: bytes) -> None:
        """The log says that it has had this value at this offset."""
        assert offset not in self._there or self._there[offset].value == value

    def started(self, log: PartitionLog, began: int, kept: int, *, has_lost_power: bool) -> None:
        """The next process has opened the log. It began at `began`, and had all below `kept` for certain."""
        assert log.findings.damaged == ()
        assert log.findings.unexplained == ()
        self._check_ends(log, began, kept, has_lost_power=has_lost_power)
        self._keep_what_is_found(log, kept, has_lost_power=has_lost_power)

    def _check_ends(self, log: PartitionLog, began: int, kept: int, *, has_lost_power: bool) -> None:
        assert log.log_start_offset >= self.deleted, "deleted records are there again"
        assert log.end_offset >= kept or began >= kept, "records are gone"
        if log.log_start_offset > began:
            assert has_lost_power, "the log begins later"
            assert kept <= began, "records are gone"

    def _keep_what_is_found(self, log: PartitionLog, kept: int, *, has_lost_power: bool) -> None:
        found = records(log)
        assert found.items() <= {**self._pending, **self._there}.items(), "other records"
        if has_lost_power or not self.is_compacted:
            gone = {offset for offset in self._there if offset >= kept or not self.is_compacted} - found.keys()
            assert has_lost_power or all(offset < log.log_start_offset for offset in gone), "records are gone"
            for offset in gone:
                del self._there[offset]
        self._there |= found
        self._pending = {}
        if has_lost_power and self._promise is Promise.SYNCED:
            values = {each.value for each in found.values()}
            self._visible = {value: offset for value, offset in self._visible.items() if value in values}
            self._position = None

    def look(self, log: PartitionLog) -> None:
        """What readers see is right."""
        check_offsets(log, may_have_gaps=self.is_compacted)
        found = records(log)
        assert found.items() <= self._there.items(), "a reader sees other records"
        self._check_values(found)
        if self.is_compacted:
            self._check_keys(log, found)
        else:
            expected = range(log.log_start_offset, log.high_watermark)
            assert found.keys() == set(expected), "records are missing"
        if self._promise is not Promise.SYNCED:
            self._check_committed(log, found)
            self._check_position(log)

    def _check_values(self, found: dict[int, Seen]) -> None:
        before: tuple[int, bytes | None] = -1, None
        for offset, (_, value) in found.items():
            if value is not None:
                first = self._visible.setdefault(value, offset)
                follows = value == before[1]
                assert follows or first <= offset < first + 3, f"{value!r} is at {first} and at {offset}"
            before = offset, value

    def _check_keys(self, log: PartitionLog, found: dict[int, Seen]) -> None:
        """The last record of every key stays; if it is a tombstone, it may go when all older ones have gone."""
        without = {value for sender in self._senders for value in (*sender.aborted, *sender.undecided)}
        last = {
            seen.key: offset
            for offset, seen in sorted(self._there.items())
            if offset < log.high_watermark and seen.value not in without and seen.key is not None
        }
        left = {seen.key for seen in found.values() if seen.value not in without}
        gone = {
            key: offset
            for key, offset in last.items()
            if log.log_start_offset <= offset not in found
            and (key in left or not is_tombstone(self._there[offset].value or b""))
        }
        assert not gone, f"the last records of these keys are gone: {gone}"

    def _check_committed(self, log: PartitionLog, found: dict[int, Seen]) -> None:
        values = committed(log)
        senders = [each for each in self._senders if each.is_transactional]
        for sender in senders:
            assert not values & (sender.aborted | sender.undecided), "what was not committed is seen"
        if all(each.open is None for each in senders):
            assert log.last_stable_offset == log.high_watermark, "nothing is open"
            aborted = {value for each in senders for value in each.aborted}
            assert values >= {each.value for each in found.values() if each.value is not None} - aborted

    def _check_position(self, log: PartitionLog) -> None:
        """A consumer at the end is not told that the log was cut (KIP-320)."""
        self._position = newest_epoch(log) or self._position
        if self._position is not None:
            offset, epoch = self._position
            assert log.end_offset_for_epoch(epoch).end_offset >= offset, f"a consumer at {self._position}"
