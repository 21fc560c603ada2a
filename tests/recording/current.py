"""Our clients as journeys use them: what they do and are told goes into the history that is taken down, if one is.

with judged(servers):
    journey(servers)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from ottla import Admin, OffsetReset
from ottla.testing import History
from ottla.testing.history.facts import Acknowledged, Committed, OffsetsSent, Polled
from tests.recording import ours
from tests.recording.final import assert_good, note_logs, note_positions

#: What a journey does that no client notes, and what it is taken for then.
EXCUSED: Mapping[str, Collection[str]] = {
    # It commits an older offset and deletes the group, through an admin.
    "o4_positions_are_committed_in_every_way": ["commit-regression"],
    # Two of its four producers promise no order: they are not idempotent.
    "kip126_batches_that_are_too_large_are_split": ["nonmonotonic-send"],
    # An admin ends the transaction.
    "a_detached_transaction_is_ended_by_somebody_else": ["aborted-read", "precommitted-read"],
}


class _Taken:
    """The history of now. Without `judged` it is one that nobody reads."""

    history = History()
    numbers = itertools.count(1)


class Producer(ours.RecordingProducer):
    """`ottla.Producer`, recorded."""

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config, _Taken.history, f"producer {next(_Taken.numbers)}")


class Consumer(ours.RecordingConsumer):
    """`ottla.Consumer`, recorded."""

    def __init__(
        self, config: Mapping[str, object], *, on_reset: Callable[[OffsetReset], object] | None = None
    ) -> None:
        super().__init__(config, _Taken.history, f"consumer {next(_Taken.numbers)}", on_reset=on_reset)


@contextmanager
def judged(servers: str, *, ignore: Collection[str] = ()) -> Iterator[None]:
    """Note what the clients in the block do. In the end read back what is there; nothing may have happened that must
    not, but for `ignore`."""
    _Taken.history = history = History()
    try:
        yield
    finally:
        _Taken.history = History()
    told = _topics(history)
    with Admin({"bootstrap.servers": servers}) as admin:
        topics = {each.name: each.partitions for each in admin.list_topics() if each.name in told}
    note_logs(history, servers, topics)
    for group in _groups(history):
        note_positions(history, servers, group)
    assert_good(history, ignore=ignore)


def _topics(history: History) -> set[str]:
    """All topics that somebody was told of a record in."""
    found: set[str] = set()
    for event in history.events:
        match event.fact:
            case Acknowledged(tp=tp):
                found.add(tp.topic)
            case Polled(records=records):
                found.update(tp.topic for tp, _, _ in records)
    return found


def _groups(history: History) -> set[str]:
    """All groups that have committed."""
    return {event.fact.group for event in history.events if isinstance(event.fact, Committed | OffsetsSent)}
