"""Incremental fetch sessions (KIP-227): after the first request, a request names only what has changed.

The session's epoch counts requests. Epoch 0 asks for a new session and names all partitions; then come 1, 2 and so on.
A broker that keeps no session answers with id 0; then every request names all partitions. Epoch 0 with the id of a
session closes that session.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition

_MAX_EPOCH = 2**31 - 1


class SessionRequest(NamedTuple):
    """What to put into the next fetch."""

    session_id: int
    epoch: int
    partitions: Mapping[TopicPartition, FetchPartition]
    #: What the session must forget, with the topic id that it has there: metadata may not know that id any more.
    forgotten: Mapping[TopicPartition, bytes]


class FetchSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._partitions: dict[TopicPartition, tuple[bytes, FetchPartition]] = {}

    def build(self, wanted: Mapping[TopicPartition, tuple[bytes, FetchPartition]]) -> SessionRequest:
        """The request that makes the session hold exactly `wanted`: partition → (topic id, what to fetch)."""
        if self._epoch == 0:
            self._partitions = dict(wanted)
            return SessionRequest(self._id, 0, {tp: part for tp, (_, part) in wanted.items()}, {})
        changed = {tp: named[1] for tp, named in wanted.items() if self._partitions.get(tp) != named}
        gone = {tp: topic_id for tp, (topic_id, _) in self._partitions.items() if tp not in wanted}
        self._partitions = dict(wanted)
        return SessionRequest(self._id, self._epoch, changed, gone)

    def named(self, tp: TopicPartition) -> tuple[bytes, FetchPartition] | None:
        """What the session has of a partition: its topic's id, and what is fetched."""
        return self._partitions.get(tp)

    def made_anew(self, wanted: Mapping[TopicPartition, tuple[bytes, FetchPartition]]) -> bool:
        """Whether a topic of the session was deleted and created again. Only a new session forgets the old topic id."""
        both = ((self._partitions.get(tp), named) for tp, named in wanted.items())
        return any(had is not None and had is not named and had[0] != named[0] for had, named in both)

    def answered(self, error: ErrorCode, session_id: int) -> None:
        """Count an answer."""
        if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.reset()
            self._id = 0
        elif error != ErrorCode.NONE:
            self.reset()
        elif session_id == 0:
            self._id = self._epoch = 0
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch >= _MAX_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """Let the next request begin a new session and close the old one, whose state at the broker is unknown."""
        self._epoch = 0
        self._partitions = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What the session holds."""
        return frozenset(self._partitions)
