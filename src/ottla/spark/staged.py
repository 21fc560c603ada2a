"""What a task has put aside for the driver, with `atomicity=batch`. Pure."""

from typing import NamedTuple


class StagedBatch(NamedTuple):
    """A record batch for one partition of the output, encoded and without a producer."""

    topic: str
    partition: int
    #: How many records; a producer's sequence numbers go on by so many.
    records: int
    data: bytes


class StagedAt(NamedTuple):
    """Where an attempt has put its record batches: among others of one partition of the staging topic."""

    topic: str
    partition: int
    #: What its records there have as key.
    attempt: str
    #: The offsets of its first record and of its last one, and how many it has.
    first: int
    last: int
    records: int


class Staged(NamedTuple):
    """The rows of one attempt at a slot. Few rows travel in the task's report, others lie in the staging topic."""

    inline: tuple[StagedBatch, ...]
    at: StagedAt | None = None
