"""What one fetch brought of one partition: bytes until somebody wants records or columns.

Batches of aborted transactions are left out as KIP-98 says: the answer lists (producer id, first offset) of those that
reach into the fetched range; from that offset on the producer's transactional batches are aborted until its abort
marker. Control records are never shown. The position moves over whatever is left out.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.consumer.positions import PartitionState
from ottla.client.errors import CorruptRecordsError, SerializationError
from ottla.client.serdes import Deserializer
from ottla.wire.batch import BatchHeader, CorruptBatchError, is_emptied, iter_headers, parse_end_txn_marker
from ottla.wire.codec import Buffer
from ottla.wire.records import decode_consumer_records

if TYPE_CHECKING:
    import pyarrow


class Decoding:
    """How records are made out of bytes."""

    def __init__(
        self, *, check_crcs: bool, read_committed: bool, key: Deserializer | None, value: Deserializer | None
    ) -> None:
        self.check_crcs = check_crcs
        self.read_committed = read_committed
        self.key = key
        self.value = value


class FetchedPartition:
    """The batches of one fetch of one partition, taken from front to back.

    Behind the last of them may be an error, which is raised when everything before it was taken: damage that was found
    between the batches (again and again, until the user seeks), or what `fail` was given (until `told`).
    """

    def __init__(
        self,
        state: PartitionState,
        data: Buffer,
        aborted: Iterable[tuple[int, int]],
        decoding: Decoding,
    ) -> None:
        self.state = state
        self.version = state.version
        #: It was taken to its end, and its partition's state says so.
        self.counted_out = False
        self.size_bytes = len(data)
        self._data = data
        self._decoding = decoding
        self._headers: list[tuple[int, BatchHeader]] = []
        self._damage: CorruptDataError | None = None
        self._failure: Exception | None = None
        try:
            for found in _ascending(data):
                self._headers.append(found)
        except CorruptDataError as error:
            self._damage = error
        self._next = 0
        self._records: list[ConsumerRecord] = []
        self._at = 0
        self._all_aborted: list[tuple[int, int]] = []
        if decoding.read_committed:
            self._all_aborted = sorted(aborted, key=lambda found: found[1], reverse=True)
        self._aborted = list(self._all_aborted)
        self._aborting: set[int] = set()
        #: Where the next fetch goes on.
        self.end_offset = self._headers[-1][1].last_offset + 1 if self._headers else state.fetch_offset

    @property
    def is_void(self) -> bool:
        """Whether the partition was sought, reset or taken away since."""
        return self.version != self.state.version

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left, an error neither."""
        return self._batches_taken and not self.ends_in_error

    @property
    def ends_in_error(self) -> bool:
        """Whether something is wrong behind the last batch."""
        return self._damage is not None or self._failure is not None

    @property
    def _batches_taken(self) -> bool:
        return self._at >= len(self._records) and self._next >= len(self._headers)

    def fail(self, error: Exception) -> None:
        """Have `error` raised when what is good was taken, until it is `told`."""
        self._failure = error

    def told(self) -> None:
        """The user got the error."""
        if self._batches_taken:
            self._failure = None

    def take_records(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records; moves the position. Raises CorruptRecordsError, SerializationError, what `fail` got.

        What is good before a bad record comes first; the position then stays at the bad one, and so does the error,
        until the user seeks over it.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < limit and not self.exhausted:
            try:
                if self._batches_taken:
                    self._raise_what_follows()
                if self._at >= len(self._records):
                    self._decode_next()
                    continue
                chunk = self._chunk(limit - len(taken))
            except Exception as error:
                if taken:
                    break
                if isinstance(error, CorruptDataError):
                    raise self._corrupt(error) from error
                raise
            taken = taken + chunk if taken else chunk
            self._at += len(chunk)
            self._move(chunk[-1].offset + 1, chunk[-1].leader_epoch)
            if self._at >= len(self._records):
                self._batch_done()
        return taken

    def rewind(self, position: int, position_epoch: int) -> None:
        """What was taken from `position` on was not handed out: the next call takes it again."""
        self.state.position, self.state.position_epoch = position, position_epoch
        self._next = self._at = 0  # what is before the position is passed over
        self._records = []
        self._aborted = list(self._all_aborted)
        self._aborting = set()

    def take_columns(self, *, with_headers: bool) -> "pyarrow.RecordBatch":
        """All that is left and good, as columns; moves the position. Raises what `take_records` raises."""
        while True:
            if self._batches_taken:
                self._raise_what_follows()
            columns = self._take_good_columns(with_headers)
            if columns.num_rows or self.exhausted:
                return columns

    def _take_good_columns(self, with_headers: bool) -> "pyarrow.RecordBatch":
        begin = self._next
        if self._at < len(self._records):  # records of this batch were taken, the rest comes as columns
            begin -= 1
        stop = len(self._headers)
        try:
            columns = self._columns(begin, stop, with_headers)
        except CorruptDataError:
            try:
                stop, columns = self._columns_before_damage(begin, with_headers)
            except CorruptDataError as error:
                raise self._corrupt(error) from error
        if stop:
            last = self._headers[stop - 1][1]
            self._move(last.last_offset + 1, last.partition_leader_epoch)
        self._next = stop
        self._records = []
        self._at = 0
        return columns

    def _columns_before_damage(self, begin: int, with_headers: bool) -> "tuple[int, pyarrow.RecordBatch]":
        """The longest run of batches that can be read, and where it stops. Raises when the first of them cannot."""
        good, bad = begin, len(self._headers)
        aborts = self._aborted, self._aborting
        while bad - good > 1:
            middle = (good + bad) // 2
            self._aborted, self._aborting = list(aborts[0]), set(aborts[1])
            try:
                self._columns(begin, middle, with_headers)
                good = middle
            except CorruptDataError:
                bad = middle
        self._aborted, self._aborting = aborts
        stop = max(good, begin + 1)
        return stop, self._columns(begin, stop, with_headers)

    def _columns(self, begin: int, stop: int, with_headers: bool) -> "pyarrow.RecordBatch":
        from ottla.wire.columns import decode_columns

        aborts = list(self._aborted), set(self._aborting)
        first = self._headers[begin][0] if begin < stop else len(self._data)
        end = self._headers[stop - 1][0] + self._headers[stop - 1][1].size_bytes if stop else 0
        try:
            left_out = {h.base_offset for pos, h in self._headers[self._next : stop] if self._left_out(pos, h)}
            return decode_columns(
                self._data if (first, end) == (0, len(self._data)) else memoryview(self._data)[first:end],
                start_offset=self.state.position,
                skip=lambda header: header.base_offset in left_out,
                with_headers=with_headers,
                check_crc=self._decoding.check_crcs,
            )
        except Exception:
            self._aborted, self._aborting = aborts
            raise

    def _raise_what_follows(self) -> None:
        """Everything good was taken: tell what is wrong behind it, if anything is."""
        if self._damage is not None:
            raise self._corrupt(self._damage) from self._damage
        if self._failure is not None:
            raise self._failure

    def _corrupt(self, error: CorruptDataError) -> CorruptRecordsError:
        return CorruptRecordsError(self.state.tp, self.state.position, str(error))

    def _chunk(self, wanted: int) -> list[ConsumerRecord]:
        """The next records of the batch at hand, deserialized: up to `wanted`, or up to a bad one."""
        if self._at == 0 and len(self._records) <= wanted:
            chunk = self._records
        else:
            chunk = self._records[self._at : self._at + wanted]
        if self._decoding.key is None and self._decoding.value is None:
            return chunk
        made: list[ConsumerRecord] = []
        for record in chunk:
            try:
                made.append(self._deserialize(record))
            except SerializationError:
                if made:
                    break
                raise
        return made

    def _decode_next(self) -> None:
        pos, header = self._headers[self._next]
        self._at = 0
        self._records = []
        records: list[ConsumerRecord] = []
        if header.last_offset < self.state.position:
            self._left_out(pos, header)
        elif not self._left_out(pos, header):
            records = decode_consumer_records(
                self._data,
                pos,
                header,
                ConsumerRecord,
                topic=self.state.tp.topic,
                partition=self.state.tp.partition,
                start_offset=self.state.position,
                check_crc=self._decoding.check_crcs,
            )
        self._next += 1  # not before: a batch that cannot be decoded is not passed over
        self._records = records
        if not self._records:
            self._batch_done()

    def _batch_done(self) -> None:
        header = self._headers[self._next - 1][1]
        self._move(header.last_offset + 1, header.partition_leader_epoch)

    def _move(self, offset: int, epoch: int | None) -> None:
        if offset > self.state.position:
            self.state.position = offset
            self.state.position_epoch = -1 if epoch is None else epoch

    def _left_out(self, pos: int, header: BatchHeader) -> bool:
        """Whether the user does not get this batch. Called once a batch, in order."""
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._aborting.add(self._aborted.pop()[0])
        if header.is_control:
            if header.producer_id in self._aborting and _ends_abort(self._data, pos, header):
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborting

    def _deserialize(self, record: ConsumerRecord) -> ConsumerRecord:
        decoding = self._decoding
        key, value = record.key, record.value
        if decoding.key is not None:
            key = _apply(decoding.key, "key", record, key)
        if decoding.value is not None:
            value = _apply(decoding.value, "value", record, value)
        return record._replace(key=key, value=value)


def _ascending(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """`iter_headers`, and CorruptBatchError for a batch that does not follow the one before it."""
    behind = 0
    for pos, header in iter_headers(data):
        if header.last_offset_delta < 0 or header.base_offset < behind:
            raise CorruptBatchError(
                f"a batch of offsets {header.base_offset} to {header.last_offset} behind {behind - 1}"
            )
        behind = header.last_offset + 1
        yield pos, header


def _ends_abort(data: Buffer, pos: int, header: BatchHeader) -> bool:
    """Whether the marker ends an aborted transaction. The records behind one that was emptied are of the next one."""
    if is_emptied(header):
        return True
    commit, _ = parse_end_txn_marker(memoryview(data)[pos : pos + header.size_bytes])
    return not commit


def _apply(deserializer: Deserializer, what: str, record: ConsumerRecord, data: bytes | None) -> Any:
    try:
        return deserializer(record.topic, data)
    except Exception as error:  # whatever a user's deserializer raises
        raise SerializationError(
            f"{record.topic}-{record.partition} offset {record.offset}: the {what} could not be deserialized: {error}",
            partition=TopicPartition(record.topic, record.partition),
            offset=record.offset,
        ) from error
