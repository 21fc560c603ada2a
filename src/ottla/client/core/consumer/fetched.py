"""What one fetch brought of one partition. It stays bytes until somebody takes records or columns.

Batches of aborted transactions are left out, as KIP-98 says. The answer lists the aborted transactions of the fetched
range, by producer id and first offset. From this offset on, the producer's transactional batches are aborted, until its
abort marker. The user never gets control records. The position moves over everything that is left out.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.consumer.positions import UNKNOWN_EPOCH, PartitionState
from ottla.client.errors import CorruptRecordsError, SerializationError
from ottla.client.serdes import Deserializer
from ottla.wire.batch import BatchHeader, CorruptBatchError, check_integrity, is_emptied, iter_headers, parse_header
from ottla.wire.batch_walk import batch_positions
from ottla.wire.codec import Buffer
from ottla.wire.markers import parse_end_txn_marker
from ottla.wire.records import ConsumerBatch, open_batch

if TYPE_CHECKING:
    import pyarrow

#: So much of decompressed batches becomes columns at once, as of plain ones by default (`max.partition.fetch.bytes`): a
#: fetch may hold a thousand times as much. Memory of this size is used again and again, and stays in the processor's
#: cache; with 4 MiB the decoding takes twice as long, with a whole fetch five times.
COLUMNS_BYTES: Final = 1_048_576


class Decoding:
    """How bytes become records."""

    def __init__(
        self, *, check_crcs: bool, read_committed: bool, key: Deserializer | None, value: Deserializer | None
    ) -> None:
        self.check_crcs = check_crcs
        self.read_committed = read_committed
        self.key = key
        self.value = value


class FetchedPartition:
    """The batches of one fetch of one partition, taken from front to back.

    There may be an error behind the last of them. It is raised when everything before it was taken. Damage between the
    batches is raised again and again, until the user seeks. An error from `fail` is raised until `told`.
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
        #: All of it was taken, and the counts in its partition's state include it.
        self.counted_out = False
        self.size_bytes = len(data)
        self._data = data
        self._decoding = decoding
        #: Where each batch begins. Headers are made when somebody takes: there may be one in every 70 bytes.
        self._positions, walked = batch_positions(data)
        self._newest_epoch = state.leader_epoch
        self._kept: tuple[int, BatchHeader] | None = None
        self._damage: CorruptDataError | None = None
        self._failure: Exception | None = None
        #: Where the next fetch goes on.
        self.end_offset = self._header(-1).last_offset + 1 if self._positions else state.fetch_offset
        try:
            _check_rest(data, walked, self.end_offset if self._positions else 0)
        except CorruptDataError as error:
            self._damage = error
        self._next = 0
        #: The batch that is being taken, until its last records are decoded; the records that are, and how many of them
        #: were taken. No more are decoded than somebody asks for: a batch may hold millions.
        self._batch: ConsumerBatch[ConsumerRecord] | None = None
        self._records: list[ConsumerRecord] = []
        self._at = 0
        self._all_aborted: list[tuple[int, int]] = []
        if decoding.read_committed:
            self._all_aborted = sorted(aborted, key=lambda found: found[1], reverse=True)
        self._aborted = list(self._all_aborted)
        self._aborting: set[int] = set()

    @property
    def is_void(self) -> bool:
        """Whether it must not be used any more: its partition was sought, reset or taken away since."""
        return self.version != self.state.version

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left, not even an error."""
        return self._batches_taken and not self.ends_in_error

    @property
    def ends_in_error(self) -> bool:
        """Whether there is an error behind the last batch."""
        return self._damage is not None or self._failure is not None

    @property
    def _batches_taken(self) -> bool:
        return self._batch_taken and self._next >= len(self._positions)

    @property
    def _batch_taken(self) -> bool:
        return self._at >= len(self._records) and self._batch is None

    def fail(self, error: Exception) -> None:
        """Let `error` be raised when everything before it was taken, until it is `told`."""
        self._failure = error

    def told(self) -> None:
        """The user has got the error."""
        if self._batches_taken:
            self._failure = None

    def take_records(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records; moves the position. Raises CorruptRecordsError, SerializationError, `fail`'s error.

        Good records before a bad one come first. Then the position stays at the bad one, and each call raises, until
        the user seeks behind it.
        """
        taken: list[ConsumerRecord] = []
        first: list[ConsumerRecord] = []  # a chunk is not copied, unless others follow it
        while len(taken) < limit and not self.exhausted:
            try:
                if self._batches_taken:
                    self._raise_what_follows()
                if self._at >= len(self._records):
                    self._decode(limit - len(taken))
                    continue
                chunk = self._chunk(limit - len(taken))
            except Exception as error:
                if taken:
                    break
                if isinstance(error, CorruptDataError):
                    raise self._corrupt(error) from error
                raise
            if not taken:
                taken = first = chunk
            elif taken is first:
                taken = taken + chunk
            else:
                taken += chunk
            self._at += len(chunk)
            self._move(chunk[-1].offset + 1, chunk[-1].leader_epoch)
            if self._batch_taken:
                self._batch_done()
        return taken

    def rewind(self, position: int, position_epoch: int) -> None:
        """The user has not got what was taken from `position` on: the next call takes it again."""
        self.state.position, self.state.position_epoch = position, position_epoch
        self._next = self._at = 0  # batches before the position are passed over
        self._batch, self._records = None, []
        self._aborted = list(self._all_aborted)
        self._aborting = set()

    def take_columns(self, *, with_headers: bool) -> "pyarrow.RecordBatch":
        """Good records that are left, as columns; moves the position. Raises what `take_records` raises.

        All of them; or of compressed batches as many as hold `COLUMNS_BYTES` when decompressed, or as many bytes as the
        fetch has, if that is more. Without rows only if nothing is left.
        """
        while True:
            if self._batches_taken:
                self._raise_what_follows()
            columns = self._take_good_columns(with_headers)
            if columns.num_rows or self.exhausted:
                return columns

    def _take_good_columns(self, with_headers: bool) -> "pyarrow.RecordBatch":
        begin = self._next
        if not self._batch_taken:  # some records of this batch were taken; the rest comes as columns
            begin -= 1
        try:
            stop, columns = self._columns(begin, len(self._positions), with_headers)
        except CorruptDataError:
            try:
                stop, columns = self._columns_before_damage(begin, with_headers)
            except CorruptDataError as error:
                raise self._corrupt(error) from error
        if stop:
            last = self._header(stop - 1)
            self._move(last.last_offset + 1, last.partition_leader_epoch)
        self._next = stop
        self._batch, self._records = None, []
        self._at = 0
        return columns

    def _columns_before_damage(self, begin: int, with_headers: bool) -> "tuple[int, pyarrow.RecordBatch]":
        """The longest run of batches that can be read, and where it stops. Raises if the first one cannot be read."""
        good, bad = begin, len(self._positions)
        aborts = self._aborted, self._aborting
        while bad - good > 1:
            middle = (good + bad) // 2
            self._aborted, self._aborting = list(aborts[0]), set(aborts[1])
            try:
                good, _ = self._columns(begin, middle, with_headers)  # the damage comes before a part is full
            except CorruptDataError:
                bad = middle
        self._aborted, self._aborting = aborts
        return self._columns(begin, max(good, begin + 1), with_headers)

    def _columns(self, begin: int, stop: int, with_headers: bool) -> "tuple[int, pyarrow.RecordBatch]":
        """Where it has stopped, at `stop` or before it; and the columns of the batches until there."""
        from ottla.wire.columns import ColumnsPart

        aborts = list(self._aborted), set(self._aborting)
        part, at, enough_bytes = ColumnsPart(), begin, max(COLUMNS_BYTES, self.size_bytes)
        try:
            while at < stop and part.size_bytes < enough_bytes:
                pos, header = self._positions[at], self._header(at)
                # The first one may be taken in part: then it was asked about already.
                is_left_out = at >= self._next and self._left_out(pos, header)
                at += 1
                if not is_left_out and header.last_offset >= self.state.position:
                    part.add(header, open_batch(self._data, pos, header, check_crc=self._decoding.check_crcs))
            return at, part.columns(self.state.position, with_headers=with_headers)
        except Exception:
            self._aborted, self._aborting = aborts
            raise

    def _raise_what_follows(self) -> None:
        """Everything good was taken: raise the error behind it, if there is one."""
        if self._damage is not None:
            raise self._corrupt(self._damage) from self._damage
        if self._failure is not None:
            raise self._failure

    def _corrupt(self, error: CorruptDataError) -> CorruptRecordsError:
        return CorruptRecordsError(self.state.tp, self.state.position, str(error))

    def _chunk(self, wanted: int) -> list[ConsumerRecord]:
        """The next records of the current batch, deserialized: `wanted` at most, and none behind a bad one."""
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

    def _decode(self, wanted: int) -> None:
        """Decode the next `wanted` records of the batch at hand, or else of the next one. There may be none."""
        batch = self._batch
        self._at = 0
        self._records = []
        if batch is None:
            batch = self._opened(self._positions[self._next], self._header(self._next))
        records = [] if batch is None else batch.take(self.state.position, wanted)
        if self._batch is None:
            self._next += 1  # only now: a batch that cannot be decoded must not be passed over
        self._batch = None if batch is None or batch.is_taken else batch
        self._records = records
        if not records:
            self._batch_done()

    def _opened(self, pos: int, header: BatchHeader) -> ConsumerBatch[ConsumerRecord] | None:
        if self._left_out(pos, header) or header.last_offset < self.state.position:
            return None
        tp, check_crc = self.state.tp, self._decoding.check_crcs
        return ConsumerBatch(
            self._data, pos, header, ConsumerRecord, topic=tp.topic, partition=tp.partition, check_crc=check_crc
        )

    def _batch_done(self) -> None:
        header = self._header(self._next - 1)
        self._move(header.last_offset + 1, header.partition_leader_epoch)

    def _header(self, number: int) -> BatchHeader:
        """The header of a batch; that of the last one who was asked for is at hand."""
        pos = self._positions[number]
        if self._kept is None or self._kept[0] != pos:
            self._kept = pos, _of_epochs_up_to(self._newest_epoch, parse_header(self._data, pos))
        return self._kept[1]

    def _move(self, offset: int, epoch: int | None) -> None:
        if offset > self.state.position:
            self.state.position = offset
            self.state.position_epoch = -1 if epoch is None else epoch

    def _left_out(self, pos: int, header: BatchHeader) -> bool:
        """Whether the user must not get this batch. To be called for each batch, in order.

        CorruptBatchError if nobody would get it, and it is damaged; the call may be repeated then.
        """
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._aborting.add(self._aborted.pop()[0])
        is_passed = header.last_offset < self.state.position
        is_aborted = header.is_transactional and header.producer_id in self._aborting
        if self._decoding.check_crcs and (is_passed or is_aborted or header.is_control):
            # It is not decoded. But perhaps only one bit says that it is to be left out.
            check_integrity(self._data, pos, header)
        if header.is_control:
            if header.producer_id in self._aborting and _ends_abort(self._data, pos, header):
                self._aborting.discard(header.producer_id)
            return True
        return is_aborted

    def _deserialize(self, record: ConsumerRecord) -> ConsumerRecord:
        decoding = self._decoding
        key, value = record.key, record.value
        if decoding.key is not None:
            key = _apply(decoding.key, "key", record, key)
        if decoding.value is not None:
            value = _apply(decoding.value, "value", record, value)
        return record._replace(key=key, value=value)


def _check_rest(data: Buffer, pos: int, behind: int) -> None:
    """Raise CorruptBatchError unless the data ends at `pos`, or inside a batch: another would have been walked over."""
    for _, header in iter_headers(data, start=pos):
        raise CorruptBatchError(
            f"a batch of offsets {header.base_offset} to {header.last_offset} comes behind offset {behind - 1}"
        )


def _of_epochs_up_to(newest: int, header: BatchHeader) -> BatchHeader:
    """The header, with no epoch in place of one that is newer than the leader's, or below 0.

    No checksum covers a leader epoch. With a changed one, a position would not be in the log any more (KIP-320).
    """
    epoch = header.partition_leader_epoch
    if epoch >= UNKNOWN_EPOCH and (epoch <= newest or newest == UNKNOWN_EPOCH):
        return header
    return header._replace(partition_leader_epoch=UNKNOWN_EPOCH)


def _ends_abort(data: Buffer, pos: int, header: BatchHeader) -> bool:
    """Whether the marker ends an aborted transaction. An emptied one does: the next follows it."""
    if is_emptied(header):
        return True
    commit, _ = parse_end_txn_marker(memoryview(data)[pos : pos + header.size_bytes])
    return not commit


def _apply(deserializer: Deserializer, what: str, record: ConsumerRecord, data: bytes | None) -> Any:
    try:
        return deserializer(record.topic, data)
    except Exception as error:  # whatever a user's deserializer raises
        raise SerializationError(
            f"{record.topic}-{record.partition} offset {record.offset}: the {what} could not be deserialized: {error}. "
            f"To go on behind the record, seek() to offset {record.offset + 1}",
            partition=TopicPartition(record.topic, record.partition),
            offset=record.offset,
        ) from error
