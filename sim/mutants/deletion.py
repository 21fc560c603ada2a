"""Bugs of the real broker in the deletion of records."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ottla.broker.handlers import delete_records
from ottla.broker.runtime.checkpoints import Checkpoints
from ottla.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


@contextmanager
def answers_before_it_writes() -> Iterator[None]:
    """DeleteRecords is answered, and the new log starts are in no file until the next checkpoint."""

    async def delete_all(node: Any, request: DeleteRecordsRequest, refused: Collection[str]) -> DeleteRecordsResponse:
        results: list[DeleteRecordsTopicResult] = []
        await node.slices.run(delete_records._steps(node, request, refused, results))
        return DeleteRecordsResponse(topics=tuple(results))

    with patch.object(delete_records, "_delete_all", delete_all):
        yield


@contextmanager
def believes_a_start_too_high() -> Iterator[None]:
    """A start takes the offset in the checkpoint of log starts for the last one that was deleted."""
    right = Checkpoints.__init__

    def init(self: Checkpoints, *args: Any, **more: Any) -> None:
        right(self, *args, **more)
        self.log_start_offsets = {tp: start + 1 if start else 0 for tp, start in self.log_start_offsets.items()}

    with patch.object(Checkpoints, "__init__", init):
        yield
