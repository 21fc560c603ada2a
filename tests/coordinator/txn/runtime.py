"""A small runtime for one transaction shard: appends to a list, applies, answers, keeps timers and marker effects.

What a broker does around a shard, with every step in the test's hands: appends can fail, effects wait until the test
carries them out, and `reload` is a crash: a new shard that knows only what is in the log.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from ottla.base.types import TopicPartition
from ottla.coordinator.decision import CancelTimer, Decision, LogRecord, SetTimer, WriteMarkers
from ottla.coordinator.txn.config import TransactionConfig
from ottla.coordinator.txn.metadata import TransactionMetadata, from_value
from ottla.coordinator.txn.shard import TransactionShard
from ottla.wire.errors import ErrorCode
from ottla.wire.transaction_records import decode_key, decode_value

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
NOW_MS = 1_700_000_000_000


def decoded(record: LogRecord) -> TransactionMetadata | None:
    """What a record says, or None for a tombstone."""
    transactional_id = decode_key(record.key)
    assert transactional_id is not None
    return None if record.value is None else from_value(transactional_id, decode_value(record.value))


class ShardRuntime:
    """One shard, its log, its timers and the markers it asked for."""

    def __init__(self, config: TransactionConfig | None = None, coordinator_epoch: int = 0) -> None:
        self.config = config or TransactionConfig()
        self.now_ms = NOW_MS
        self.log: list[LogRecord] = []
        self.timers: dict[tuple[str, ...], int] = {}
        self.effects: list[WriteMarkers] = []
        #: (partition, producer id, epoch, commit) of every marker that reached its partition, in order.
        self.markers: list[tuple[TopicPartition, int, int, bool]] = []
        #: The next appends fail with these errors, in order.
        self.append_errors: list[ErrorCode] = []
        self.producer_ids = itertools.count(1000)
        self.out_of_producer_ids = False
        self.shard = self._new_shard(coordinator_epoch)
        self._tokens = itertools.count()

    def _new_shard(self, coordinator_epoch: int) -> TransactionShard:
        def next_producer_id() -> int | None:
            return None if self.out_of_producer_ids else next(self.producer_ids)

        return TransactionShard(coordinator_epoch, next_producer_id, self.config)

    def token(self) -> int:
        """A name for the next request."""
        return next(self._tokens)

    def carry_out(self, decision: Decision) -> list[object]:
        """Append, apply, answer; the responses in their order. Effects are kept for `write_markers`."""
        if decision.records and self.append_errors:
            refused = self.shard.append_failed(decision, self.append_errors.pop(0))
            assert not refused.records
            return self.carry_out(refused)
        for record in decision.records:
            self.log.append(record)
            self.shard.apply(record, self.now_ms)
        for timer in decision.timers:
            match timer:
                case SetTimer(key, delay_ms):
                    self.timers[key] = self.now_ms + delay_ms
                case CancelTimer(key):
                    self.timers.pop(key, None)
        for effect in decision.effects:
            assert isinstance(effect, WriteMarkers)
            self.effects.append(effect)
        return [reply.response for reply in decision.replies]

    def answer(self, decision: Decision) -> object:
        """Carry out a decision that answers exactly one request, at once."""
        (response,) = self.carry_out(decision)
        return response

    def write_markers(self, errors: Mapping[TopicPartition, ErrorCode] | None = None) -> None:
        """Carry out the marker effects; partitions in `errors` fail with theirs."""
        waiting, self.effects = self.effects, []
        for effect in waiting:
            results = {partition: (errors or {}).get(partition, ErrorCode.NONE) for partition in effect.partitions}
            for partition, error in results.items():
                if error == ErrorCode.NONE:
                    self.markers.append((partition, effect.producer_id, effect.producer_epoch, effect.commit))
            self.report(effect, results)

    def report(self, effect: WriteMarkers, results: Mapping[TopicPartition, ErrorCode]) -> None:
        """Tell the shard what became of markers."""
        decision = self.shard.markers_written(
            effect.transactional_id, effect.producer_id, effect.producer_epoch, results, self.now_ms
        )
        assert self.carry_out(decision) == []

    def fire(self, key: tuple[str, ...]) -> None:
        """A timer fires."""
        self.timers.pop(key)
        assert self.carry_out(self.shard.timer(key, self.now_ms)) == []

    def pass_time(self, delta_ms: int) -> None:
        """Time passes, and every timer that is due by then fires, in order."""
        until_ms = self.now_ms + delta_ms
        while due := min(
            (at_ms, key) for at_ms, key in [*((v, k) for k, v in self.timers.items()), (until_ms + 1, ())]
        ):
            if due[0] > until_ms:
                break
            self.now_ms = max(self.now_ms, due[0])
            self.fire(due[1])
        self.now_ms = until_ms

    def reload(self, *, compacted: bool = False, coordinator_epoch: int = 1) -> None:
        """Crash, and start again from the log, as it is or with only the last record of every key."""
        records = list({record.key: record for record in self.log}.values()) if compacted else list(self.log)
        self.timers, self.effects = {}, []
        self.shard = self._new_shard(coordinator_epoch)
        for record in records:
            self.shard.apply(record, self.now_ms)
        for decision in self.shard.loaded(self.now_ms):
            assert self.carry_out(decision) == []

    def states(self) -> list[str]:
        """The states the log went through; "-" is a tombstone."""
        return ["-" if (txn := decoded(record)) is None else txn.state.kafka_name for record in self.log]
