"""The log of one replica: its batches in order, and the state of producers and transactions that follows from them."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from ottla.wire.batch import BatchHeader, assign_offsets, parse_header
from ottla.wire.markers import control_batch, parse_end_txn_marker
from sim.cluster.producers import REMEMBERED, ProducerTable


class Entry(NamedTuple):
    """A batch in the log. Replicas that copied it have the same object."""

    base_offset: int
    last_offset: int
    epoch: int
    header: BatchHeader
    payload: bytes


class ReplicaLog:
    """The log of one replica."""

    def __init__(self, window: int = REMEMBERED) -> None:
        self.entries: list[Entry] = []
        self.producers = ProducerTable(window)
        self._window = window
        self._base_offsets: list[int] = []

    @property
    def end_offset(self) -> int:
        """The offset of the next batch."""
        return self.entries[-1].last_offset + 1 if self.entries else 0

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch; -1 if the log is empty."""
        return self.entries[-1].epoch if self.entries else -1

    def write(self, batch: bytes, epoch: int) -> Entry:
        """Append a batch as the leader of `epoch`."""
        stamped = bytearray(batch)
        assign_offsets(stamped, 0, self.end_offset, epoch)
        header = parse_header(stamped)
        entry = Entry(header.base_offset, header.last_offset, epoch, header, bytes(stamped))
        self.copy(entry)
        return entry

    def write_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, epoch: int, now_ms: int, *, commit: bool
    ) -> Entry:
        """Append the marker that ends a transaction."""
        return self.write(
            control_batch(
                commit=commit,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=now_ms,
            ),
            epoch,
        )

    def copy(self, entry: Entry) -> None:
        """Append a batch that has its offset already."""
        self.entries.append(entry)
        self._base_offsets.append(entry.base_offset)
        self._note(entry)

    def truncate(self, count: int) -> list[Entry]:
        """Keep the first `count` batches. Returns those that are removed."""
        gone = self.entries[count:]
        if gone:
            del self.entries[count:]
            del self._base_offsets[count:]
            self.producers = ProducerTable(self._window)
            for entry in self.entries:
                self._note(entry)
        return gone

    def common_prefix(self, other: "ReplicaLog") -> int:
        """How many batches at the beginning both logs have in common."""
        count = min(len(self.entries), len(other.entries))
        while count and self.entries[count - 1] is not other.entries[count - 1]:
            count -= 1
        return count

    def read(self, offset: int, end_offset: int, max_bytes: int) -> Iterator[Entry]:
        """Batches below `end_offset`, from the one that has `offset` on; the first one also if it is too large."""
        at = max(bisect_right(self._base_offsets, offset) - 1, 0)
        size = 0
        for entry in self.entries[at:]:
            size += len(entry.payload)
            if entry.last_offset >= end_offset or (size > max_bytes and size > len(entry.payload)):
                return
            if entry.last_offset >= offset:
                yield entry

    def stable_offset(self, high_watermark: int) -> int:
        """The last stable offset: where the oldest transaction begins that has not ended below the high watermark."""
        first_open = self.producers.first_open()
        unstable = [high_watermark] if first_open is None else [high_watermark, first_open]
        unstable += [txn.first_offset for txn in self.producers.completed if txn.last_offset >= high_watermark]
        return min(unstable)

    def aborted(self, offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that touch a range."""
        return [
            (txn.producer_id, txn.first_offset)
            for txn in self.producers.completed
            if not txn.committed and txn.last_offset >= offset and txn.first_offset < end_offset
        ]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to `epoch`, and its end offset; (-1, -1) if there is none."""
        found, end_offset = -1, -1
        for entry in self.entries:
            if entry.epoch > epoch:
                break
            found, end_offset = entry.epoch, entry.last_offset + 1
        return found, end_offset

    def _note(self, entry: Entry) -> None:
        header = entry.header
        if header.is_control:
            commit, coordinator_epoch = parse_end_txn_marker(entry.payload)
            self.producers.ended(
                header.producer_id, header.producer_epoch, coordinator_epoch, entry.base_offset, commit=commit
            )
        else:
            self.producers.appended(header, entry.base_offset)
