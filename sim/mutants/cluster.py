"""Bugs of the cluster: what a client cannot survive, so that the checkers must tell of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.wire.errors import ErrorCode
from sim.cluster.controller import Controller
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
