"""Bugs of the real broker's start on damaged files."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.base.types import TopicPartition
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.runtime import partitions
from ottla.log.recovery import Findings


@contextmanager
def tells_nothing() -> Iterator[None]:
    """The broker does not say what it has found."""

    def tell(tp: TopicPartition, findings: Findings) -> None:
        """Silence."""

    with patch.object(partitions, "_tell", tell):
        yield


@contextmanager
def gives_producer_ids_again() -> Iterator[None]:
    """A metadata log that was cut gives the same producer ids once more."""

    def mend(self: ClusterMetadata, in_use: Iterable[int]) -> None:
        """As if nothing were lost."""

    with patch.object(ClusterMetadata, "mend_producer_ids", mend):
        yield
