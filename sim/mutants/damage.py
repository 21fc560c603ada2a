"""Bugs of the real broker's start on damaged files."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.base.types import TopicPartition
from ottla.broker import app
from ottla.broker.disk import Disk
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.runtime import partitions
from ottla.log.recovery import Findings
from ottla.log.storage import Storage


@contextmanager
def tells_nothing() -> Iterator[None]:
    """The broker does not say what it has found."""

    def tell(tp: TopicPartition, findings: Findings) -> None:
        """Silence."""

    with patch.object(partitions, "_tell", tell):
        yield


@contextmanager
def cuts_the_metadata() -> Iterator[None]:
    """The metadata log is cut at its first bad batch, like any other log, and gives the same producer ids again."""

    def refuse(disk: Disk, folder: str) -> bool:
        """As if nothing could be wrong."""
        return True

    def mend(self: ClusterMetadata, in_use: Iterable[int], *, is_whole: bool) -> None:
        """As if nothing were lost."""

    with patch.object(app, "refuse_damage", refuse), patch.object(ClusterMetadata, "mend_producer_ids", mend):
        yield


@contextmanager
def believes_any_cluster() -> Iterator[None]:
    """What `meta.properties` held is forgotten."""

    def forgotten(storage: Storage) -> None:
        """As if there were no manifest."""

    with patch.object(app, "sealed_properties", forgotten):
        yield
