"""Incremental fetch sessions (KIP-227): after the first request, only what changed is sent.

The session's epoch counts requests: 0 asks for a new session with everything in it, then 1, 2, …; a broker that keeps
no session answers id 0, and every request is a whole one. Epoch 0 with the id of a session closes that one.
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
    #: What the session shall not hold any more, with the topic id that it has there: metadata may know none by now.
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
        changed = {tp: part for tp, (topic_id, part) in wanted.items() if self._partitions.get(tp) != (topic_id, part)}
        gone = {tp: topic_id for tp, (topic_id, _) in self._partitions.items() if tp not in wanted}
        self._partitions = dict(wanted)
        return SessionRequest(self._id, self._epoch, changed, gone)

    def made_anew(self, wanted: Mapping[TopicPartition, tuple[bytes, FetchPartition]]) -> bool:
        """Whether a topic of the session was deleted and made again: its old id cannot be forgotten by name."""
        return any(tp in self._partitions and self._partitions[tp][0] != wanted[tp][0] for tp in wanted)

    def answered(self, error: ErrorCode, session_id: int) -> None:
        """Take note of an answer."""
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
        """Ask for a new session, and close the old one, if the broker still has it: nobody knows what it heard."""
        self._epoch = 0
        self._partitions = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What the session holds."""
        return frozenset(self._partitions)
