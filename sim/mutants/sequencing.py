"""Bugs of the idempotent producer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ottla.client.core import sequencing
from ottla.client.core.sequencing import NO_SEQUENCE, Sequencer, Verdict
from ottla.client.producer.sender import Sender


@contextmanager
def epoch_raised_in_doubt() -> Iterator[None]:
    """The partition begins again with a new epoch while its oldest batch may have been written."""
    with patch.object(sequencing._Partition, "in_doubt", False):
        yield


@contextmanager
def retried_with_a_new_sequence() -> Iterator[None]:
    """A batch that is sent again is counted as a new one."""
    right = Sequencer.refused

    def refused(self: Sequencer, batch: Any, *args: Any) -> Verdict:
        verdict = right(self, batch, *args)
        partition = self._of(batch.tp)
        if verdict is Verdict.RETRY and partition.unanswered == [batch] and batch.base_sequence != NO_SEQUENCE:
            partition.remove(batch)
            batch.base_sequence = NO_SEQUENCE
        return verdict

    with patch.object(Sequencer, "refused", refused):
        yield


@contextmanager
def twenty_in_flight() -> Iterator[None]:
    """More batches are open than a broker remembers."""
    with (
        patch.object(sequencing, "MAX_UNANSWERED", 20),
        patch.object(Sender, "_has_room", lambda self, connection, leader: self._in_flight.get(leader, 0) < 20),
    ):
        yield
