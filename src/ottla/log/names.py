"""Kafka's file names in a partition's directory."""

from typing import Final

#: Offsets have 63 bits.
MAX_OFFSET: Final = 2**63 - 1

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
#: What Kafka leaves behind when it dies between renaming a file and deleting it.
DELETED: Final = ".deleted"
#: Files of a cleaned segment that is being written, and of one that takes the place of others (`cleaner.swap`).
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
#: Our own file: offsets that were flushed and are no longer in the files. Apache Kafka ignores it.
DAMAGED_OFFSETS: Final = "damaged-offsets"
#: Our own file, too: a sync is under way here, or was not done to its end (`storage.SyncNote`).
UNFINISHED_SYNC: Final = "unfinished-sync"


def file_name(base_offset: int, suffix: str) -> str:
    """The name of a segment's file: its base offset in twenty digits, then the suffix."""
    return f"{base_offset:020d}{suffix}"


def base_offset(name: str, suffix: str) -> int | None:
    """The offset in a file's name, or None when the name is not one with this suffix."""
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != 20 or not stem.isdecimal():
        return None
    return found if (found := int(stem)) <= MAX_OFFSET else None
