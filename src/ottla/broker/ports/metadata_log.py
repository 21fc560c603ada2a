"""The metadata log as the quorum's voters speak of it: who leads it, in which epoch, and how far it goes."""

from typing import Protocol


class MetadataLog(Protocol):
    """The log of a quorum whose only voter is this broker."""

    @property
    def leader_epoch(self) -> int:
        """The epoch that this broker leads in."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""

    @property
    def high_watermark(self) -> int:
        """Up to where it is committed: on the device of the only voter."""

    @property
    def features_epoch(self) -> int:
        """The offset that the levels of features are of, as they are told now."""

    @property
    def kraft_version(self) -> int:
        """From 1 on voters are known by their directories' ids too (KIP-853)."""


class HasMetadataLog(Protocol):
    """Needs to know of the metadata log itself, and not of what it says."""

    @property
    def metadata_log(self) -> MetadataLog: ...
