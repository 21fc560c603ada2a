"""Apache Kafka's snapshots of the metadata: what all records below an offset say, in one file (KIP-630).

`<end offset>-<epoch>.checkpoint` beside the log, and `bootstrap.checkpoint` in the data directory, which holds what a
new cluster begins with. Both are record batches between a header and a footer, which are control records. We write
none: a log without a snapshot is complete, and one that Apache Kafka has written stays right, because a log only grows.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.wire.batch import BatchHeader, check_integrity, iter_headers
from ottla.wire.quorum_records import ControlType, control_type
from ottla.wire.records import Record, decode_batch

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """Which snapshot: it stands for the records below `end_offset`, the last of which is of `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def newest_snapshot(names: Iterable[str]) -> SnapshotId | None:
    """The newest snapshot among a folder's files; None when there is none."""
    found = filter(None, map(_NAME.fullmatch, names))
    return max((SnapshotId(int(each[1]), int(each[2])) for each in found), default=None)


def read_snapshot(content: bytes) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Its batches. CorruptDataError when it is not whole: it must begin with a header and end with a footer."""
    kinds: list[int] = []
    end = 0
    for position, header in iter_headers(content):
        check_integrity(content, position, header)
        end = position + header.size_bytes
        records = decode_batch(content[position:end])
        kinds = [control_type(record) for record in records] if header.is_control else []
        if position == 0 and kinds[:1] != [ControlType.SNAPSHOT_HEADER]:
            raise CorruptDataError("the snapshot has no header")
        yield header, records
    if end < len(content) or kinds[-1:] != [ControlType.SNAPSHOT_FOOTER]:
        raise CorruptDataError(f"the snapshot ends at byte {end} without its footer")
