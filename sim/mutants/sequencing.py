"""Bugs of the idempotent producer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from ottla.base.rng import Rng
from ottla.client.core.producer import sequencing
from ottla.client.core.producer.fates import Fates
from ottla.client.core.producer.identity import NO_SEQUENCE
from ottla.client.core.producer.sending import Sending
from ottla.client.core.producer.shared import Shared


@contextmanager
def epoch_raised_in_doubt() -> Iterator[None]:
    """A partition begins again in a new epoch, although its oldest batch may have been written."""
    with patch.object(sequencing._Partition, "in_doubt", False):
        yield


@contextmanager
def retried_with_a_new_sequence() -> Iterator[None]:
    """A batch that is repeated gets a new sequence."""
    right = Fates._repeat

    def repeat(self: Fates, batch: Any, *args: Any) -> None:
        assert self._sequencer is not None
        partition = self._sequencer._of(batch.tp)
        if partition.unanswered == [batch] and batch.base_sequence != NO_SEQUENCE:
            partition.remove(batch)
            batch.base_sequence = NO_SEQUENCE
        right(self, batch, *args)

    with patch.object(Fates, "_repeat", repeat):
        yield


@contextmanager
def twenty_in_flight() -> Iterator[None]:
    """More batches are unanswered than a broker remembers."""
    right = Sending.__init__

    def made(self: Sending, shared: Shared, rng: Rng) -> None:
        config = replace(shared.config, max_in_flight_requests_per_connection=20)
        right(self, shared._replace(config=config), rng)

    with patch.object(sequencing, "MAX_UNANSWERED", 20), patch.object(Sending, "__init__", made):
        yield
