"""`acknowledged-end-offset` beside the metadata log: how far its changes were acknowledged.

A crash may leave the log's last batch in part, and then nobody was told of that change: recovery drops it. A disk or a
person may leave the same picture of a change that somebody was told of. This file tells the two apart. Apache Kafka's
quorum has other replicas for that; a single voter's log is cut at its first bad batch (`KafkaRaftLog`, which always
recovers from offset 0).

The file is replaced after the batch is on the device, and before anybody is told. It is not synced then: kill -9 loses
nothing of it, and a loss of power together with a damaged log is told, not refused. So it never says more than the
device has. Its first line is a checksum of the second. Apache Kafka ignores it.
"""

from contextlib import suppress
from typing import Final

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.storage import Storage
from ottla.wire.crc import crc32c

END_MARK: Final = "acknowledged-end-offset"


class EndMark:
    """The file in the metadata log's folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        #: What the file says; and of that, what the device has for certain.
        self._written = self._synced = -1

    def read(self) -> int | None:
        """The offset behind the last acknowledged change; None without the file.

        CorruptDataError when the file is damaged.
        """
        content = self._storage.read(END_MARK)
        if content is None:
            return None
        head, _, body = content.partition(b"\n")
        if head != str(crc32c(body)).encode() or not body.strip().isdigit():
            raise CorruptDataError("is damaged (its checksum is wrong)")
        return int(body)

    def write(self, end_offset: int, *, sync: bool = False) -> None:
        """Say that all changes below `end_offset` are on the device.

        If the disk refuses, the file says less than is true: then less is checked at the next start.
        """
        if end_offset > (self._synced if sync else self._written):
            body = f"{end_offset}\n".encode()
            with suppress(StorageError):
                self._storage.write(END_MARK, f"{crc32c(body)}\n".encode() + body, sync=sync)
                self._written = end_offset
                self._synced = end_offset if sync else self._synced
