"""Bugs of the real broker's start on damaged files."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.base.types import TopicPartition
from ottla.broker import recover
from ottla.broker.disk import Disk
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.runtime import partitions
from ottla.broker.told import Tell, Told
from ottla.log.findings import Findings
from ottla.log.storage import Storage


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
    """The metadata log is cut at its first bad batch, like any other log, and gives the same producer ids again."""

    def refuse(disk: Disk, folder: str, tell: Tell, *, sealed_end: int | None) -> bool:
        """As if nothing could be wrong."""
        return True

    def mend(self: ClusterMetadata, in_use: Iterable[int], *, is_whole: bool, tell: Tell) -> None:
        """As if nothing were lost."""

    with patch.object(recover, "refuse_damage", refuse), patch.object(ClusterMetadata, "mend_producer_ids", mend):
        yield


@contextmanager
def believes_any_cluster() -> Iterator[None]:
    """What `meta.properties` held is forgotten."""

    def forgotten(storage: Storage) -> None:
        """As if there were no manifest."""

    with patch.object(recover, "sealed_properties", forgotten):
        yield
