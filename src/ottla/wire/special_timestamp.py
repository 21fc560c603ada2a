"""Timestamps with a meaning of their own."""

from enum import IntEnum


class SpecialTimestamp(IntEnum):
    """Timestamps of ListOffsets that mean a special offset instead of a time (KIP-734, KIP-405, KIP-1005, KIP-1023)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6
