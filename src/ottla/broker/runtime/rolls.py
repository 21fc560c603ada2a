"""What makes a produce take long, apart from its records: segments that end with it, and what they wait for."""

from typing import Final

from ottla.base.limits import MAX_INLINE_WRITE_BYTES
from ottla.broker.runtime.naming import name_first_files
from ottla.broker.runtime.partition import Partition
from ottla.log.storage import Buffer

#: A request with which more segments end, or epochs begin, is carried out in slices: a new segment has three files, and
#: a snapshot of the producers; a partition's first record comes with the file of its leader epochs.
ROLLS_AT_ONCE: Final = 8


class Rolls:
    """What is found before the batches of one request are appended."""

    def __init__(self, count: int) -> None:
        """So many partitions has the request."""
        self._is_for_many = count > ROLLS_AT_ONCE
        self._rolls = 0
        self._seen: set[Partition] = set()
        #: The partitions whose first segment ends with this request, before the device knows its name.
        self._unnamed: dict[Partition, None] = {}
        #: A batch is large, or a partition waits for another's that is.
        self._has_large = False

    def add(self, partition: Partition, records: Buffer, now_ms: int) -> None:
        """A batch, as it will be appended. Its segment may end with it, or with the transaction that it is written in;
        or the partition's epochs begin."""
        self._has_large |= len(records) > MAX_INLINE_WRITE_BYTES or partition.is_held
        rolling = partition.log.rolling
        is_unnamed = rolling.needs_name
        if not (self._is_for_many or is_unnamed):
            return
        is_next = partition in self._seen or rolling.comes_with(records, now_ms)
        self._rolls += is_next or rolling.writes_epoch(partition.leader_epoch)
        if is_unnamed and (is_next or rolling.comes_behind(records, now_ms)):
            self._unnamed[partition] = None
        self._seen.add(partition)

    @property
    def must_wait(self) -> bool:
        """Whether it must be appended in slices, or when the device knows some names."""
        return self._rolls > ROLLS_AT_ONCE or self._has_large or bool(self._unnamed)

    async def name_files(self) -> None:
        """Have the device know the names that are waited for."""
        await name_first_files(self._unnamed)
