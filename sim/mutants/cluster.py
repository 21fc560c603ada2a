"""Bugs of the cluster: no client can work with them, so the checkers must find them."""

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
    """A broker accepts any sequence."""
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
    """acks=all is answered before a follower has a copy."""
    right = Replica._acknowledge

    def acknowledge(self: Replica, base_offset: int, needed: int, acks: int, timeout_s: float, answer: object) -> None:
        right(self, base_offset, needed, 1, timeout_s, answer)  # type: ignore[arg-type]

    with patch.object(Replica, "_acknowledge", acknowledge):
        yield


@contextmanager
def no_aborted_list() -> Iterator[None]:
    """The answer to a fetch does not list aborted transactions."""
    with patch.object(ReplicaLog, "aborted", lambda self, offset, end_offset: []):
        yield


@contextmanager
def reads_open_transactions() -> Iterator[None]:
    """The last stable offset is the high watermark."""
    with patch.object(ReplicaLog, "stable_offset", lambda self, high_watermark: high_watermark):
        yield


@contextmanager
def any_generation_commits() -> Iterator[None]:
    """A coordinator accepts offsets of any generation and of any member."""
    with (
        patch.object(commit, "check_commit", lambda *args, **options: ErrorCode.NONE),
        patch.object(commit, "check_transactional_commit", lambda *args: ErrorCode.NONE),
    ):
        yield


@contextmanager
def half_of_the_markers() -> Iterator[None]:
    """A transaction ends, and only the first of its data partitions gets a marker."""
    right = coordinators.write_markers

    def write(coordinator: Coordinator[Any], effect: WriteMarkers) -> None:
        data = [tp for tp in effect.partitions if tp.topic not in coordinators.INTERNAL_TOPICS]
        right(coordinator, effect._replace(partitions=tuple(tp for tp in effect.partitions if tp not in data[1:])))

    with patch.object(coordinators, "write_markers", write):
        yield
