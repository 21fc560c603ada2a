"""Bugs of the real broker's start on damaged files."""

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.base.types import TopicPartition
from ottla.broker import recover
from ottla.broker.disk import Disk
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.metadata.names import METADATA_TOPIC
from ottla.broker.runtime import partitions
from ottla.broker.told import Tell, Told
from ottla.log.findings import Findings
from ottla.log.names import LOG
from ottla.log.storage import Storage
from sim import damage
from sim.disk import SimDisk


@contextmanager
def tells_nothing() -> Iterator[None]:
    """The broker does not say what it has found."""

    def told_of(tp: TopicPartition, findings: Findings) -> tuple[Told, ...]:
        """Silence."""
        return ()

    with patch.object(partitions, "told_of", told_of):
        yield


@contextmanager
def cuts_the_metadata() -> Iterator[None]:
    """The metadata log is cut at its first bad batch, like any other log, and gives the same producer ids again.

    In these worlds only the metadata log is damaged: else one in three hundred shows it.
    """

    def refuse(disk: Disk, folder: str, tell: Tell, *, sealed_end: int | None) -> bool:
        """As if nothing could be wrong."""
        return True

    def mend(self: ClusterMetadata, in_use: Iterable[int], *, is_whole: bool, tell: Tell) -> None:
        """As if nothing were lost."""

    def aimed(disk: SimDisk, rng: random.Random) -> tuple[str, str]:
        """A segment of the metadata log, if there is one."""
        files = disk.files()
        logs = [file for file in files if file[0] == f"{METADATA_TOPIC}-0" and file[1].endswith(LOG)]
        return rng.choice(logs or files)

    with (
        patch.object(recover, "refuse_damage", refuse),
        patch.object(ClusterMetadata, "mend_producer_ids", mend),
        patch.object(damage, "drawn_file", aimed),
    ):
        yield


@contextmanager
def believes_any_cluster() -> Iterator[None]:
    """What `meta.properties` held is forgotten."""

    def forgotten(storage: Storage) -> None:
        """As if there were no manifest."""

    with patch.object(recover, "sealed_properties", forgotten):
        yield
