"""Bugs of the cluster: no client can work with them, so the checkers must find them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ottla.coordinator.decision import Decision, WriteMarkers
from ottla.coordinator.offsets import commit
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sync_group import SyncGroupResponse
from sim.cluster import coordinators, produce
from sim.cluster.controller import Controller
from sim.cluster.coordinators import Coordinator
from sim.cluster.log import ReplicaLog
from sim.cluster.producers import ProducerTable
from sim.cluster.replica import Replica
from sim.nemesis import Nemesis


@contextmanager
def remembers_no_batch() -> Iterator[None]:
    """A broker accepts any sequence."""
    with (
        patch.object(ProducerTable, "duplicate_of", lambda self, header: None),
        patch.object(ProducerTable, "_sequence", lambda self, known, header: ErrorCode.NONE),
    ):
        yield


@contextmanager
def takes_any_sequence() -> Iterator[None]:
    """A broker knows repetitions, and takes a batch whose predecessor is missing."""
    with patch.object(ProducerTable, "_sequence", lambda self, known, header: ErrorCode.NONE):
        yield


@contextmanager
def answers_twice() -> Iterator[None]:
    """A broker answers a Produce a second time."""
    right = produce._Produce._finish

    def finish(self: produce._Produce) -> None:
        right(self)
        right(self)

    with patch.object(produce._Produce, "_finish", finish):
        yield


@contextmanager
def gives_all_the_same() -> Iterator[None]:
    """A coordinator gives every member the assignment of the first."""
    right = Coordinator._carry_out

    def carry_out(self: Coordinator[Any], decision: Decision) -> None:
        synced = [reply.response for reply in decision.replies if isinstance(reply.response, SyncGroupResponse)]
        if synced and len(synced) == len(decision.replies):
            same = (each._replace(assignment=synced[0].assignment) for each in synced)
            replies = (reply._replace(response=each) for reply, each in zip(decision.replies, same, strict=True))
            decision = decision._replace(replies=tuple(replies))
        right(self, decision)

    with patch.object(Coordinator, "_carry_out", carry_out):
        yield


@contextmanager
def breaks_the_world() -> Iterator[None]:
    """The simulation itself has a fault."""

    async def run(self: Nemesis, until_s: float) -> None:
        raise KeyError("a bug")

    with patch.object(Nemesis, "run", run):
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
