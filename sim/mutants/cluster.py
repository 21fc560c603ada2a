"""Bugs of the cluster: what a client cannot survive, so that the checkers must tell of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ottla.coordinator.decision import WriteMarkers
from ottla.coordinator.offsets import commit
from ottla.wire.errors import ErrorCode
from sim.cluster import coordinators
from sim.cluster.controller import Controller
from sim.cluster.coordinators import Coordinator
from sim.cluster.log import ReplicaLog
from sim.cluster.producers import ProducerTable
from sim.cluster.replica import Replica


@contextmanager
def remembers_no_batch() -> Iterator[None]:
    """A broker takes whatever sequence comes."""
    with (
        patch.object(ProducerTable, "duplicate_of", lambda self, header: None),
        patch.object(ProducerTable, "_sequence", lambda self, known, header: ErrorCode.NONE),
    ):
        yield


@contextmanager
def unclean_election() -> Iterator[None]:
    """A replica that lags may lead."""
    with patch.object(Controller, "electable", lambda self, state: state.replicas):
        yield


@contextmanager
def acknowledged_by_the_leader_alone() -> Iterator[None]:
    """acks=all is answered before anybody has a copy."""
    right = Replica._acknowledge

    def acknowledge(self: Replica, base_offset: int, needed: int, acks: int, timeout_s: float, answer: object) -> None:
        right(self, base_offset, needed, 1, timeout_s, answer)  # type: ignore[arg-type]

    with patch.object(Replica, "_acknowledge", acknowledge):
        yield


@contextmanager
def no_aborted_list() -> Iterator[None]:
    """A fetch does not say which transactions were aborted."""
    with patch.object(ReplicaLog, "aborted", lambda self, offset, end_offset: []):
        yield


@contextmanager
def reads_open_transactions() -> Iterator[None]:
    """The last stable offset is the high watermark."""
    with patch.object(ReplicaLog, "stable_offset", lambda self, high_watermark: high_watermark):
        yield


@contextmanager
def any_generation_commits() -> Iterator[None]:
    """A coordinator takes offsets of former generations and of strangers."""
    with (
        patch.object(commit, "check_commit", lambda *args, **options: ErrorCode.NONE),
        patch.object(commit, "check_transactional_commit", lambda *args: ErrorCode.NONE),
    ):
        yield


@contextmanager
def half_of_the_markers() -> Iterator[None]:
    """A transaction is decided, and one of its partitions never hears of it."""
    right = coordinators.write_markers

    def write(coordinator: Coordinator[Any], effect: WriteMarkers) -> None:
        data = [tp for tp in effect.partitions if tp.topic not in coordinators.INTERNAL_TOPICS]
        right(coordinator, effect._replace(partitions=tuple(tp for tp in effect.partitions if tp not in data[1:])))

    with patch.object(coordinators, "write_markers", write):
        yield
