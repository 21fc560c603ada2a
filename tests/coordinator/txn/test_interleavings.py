"""Producers, timers, failing appends, failing markers and crashes in any order, against what must always hold (T13).

Three producers share one transactional id; each knows only what it was told. Requests may be repeated, decided and
carried out later, or lost in a crash before or after their records reach the log; records of a KIP-890 producer may
reach a partition late. Partitions are modelled as a log does it: the highest epoch of a producer id wins, a marker
closes what is open. Checked at every step: epochs never go back; a marker says what the log decided; completion comes
after every marker. At the end everything drains: no transaction is left open in any partition, and every one that a
producer was told is committed, or aborted, is exactly that.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.base.types import TopicPartition
from ottla.coordinator.decision import Decision, WriteMarkers
from ottla.coordinator.txn.metadata import TransactionMetadata
from ottla.coordinator.txn.states import PREPARED_STATES, TransactionState, TransactionVersion
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResult
from ottla.wire.messages.end_txn import EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.coordinator.txn.requests import add_decision, end_decision, errors, init_decision
from tests.coordinator.txn.runtime import ShardRuntime, decoded

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
RETRIABLE_MARKER_ERRORS = [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
slots = st.integers(0, 2)
partitions = st.sampled_from(PARTITIONS)


class Producer:
    """What one producer believes."""

    def __init__(self, version: TransactionVersion) -> None:
        self.version = version
        self.producer_id = -1
        self.epoch = -1
        self.last_end: tuple[int, int, bool] | None = None


class ModelPartition:
    """What a partition's log does with producers: epochs, open transactions, outcomes."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        #: Producer id → epoch of the records that no marker has closed.
        self.open: dict[int, int] = {}
        #: (producer id, epoch of the records) → outcomes.
        self.outcomes: dict[tuple[int, int], list[bool]] = {}

    def write(self, producer_id: int, epoch: int) -> None:
        if epoch >= self.epochs.get(producer_id, -1):
            self.epochs[producer_id] = epoch
            self.open[producer_id] = epoch

    def mark(self, producer_id: int, epoch: int, commit: bool) -> None:
        assert epoch >= self.epochs.get(producer_id, -1), "a marker older than the partition's producer"
        self.epochs[producer_id] = epoch
        if producer_id in self.open:
            self.outcomes.setdefault((producer_id, self.open.pop(producer_id)), []).append(commit)


class Interleavings(RuleBasedStateMachine):
    """The machine; every rule is one step of somebody."""

    def __init__(self) -> None:
        super().__init__()
        self.runtime = ShardRuntime()
        self.producers = [
            Producer(TransactionVersion.V2),
            Producer(TransactionVersion.V2),
            Producer(TransactionVersion.V0),
        ]
        self.partitions = {partition: ModelPartition() for partition in PARTITIONS}
        #: Writes that a KIP-890 producer was allowed and that have not reached their partition.
        self.late_writes: list[tuple[TopicPartition, int, int]] = []
        #: Decided, not appended.
        self.held: list[Decision] = []
        #: Marker effects that were carried out; their reports may come again.
        self.reported: list[WriteMarkers] = []
        #: (producer id, epoch) that some InitProducerId answered.
        self.given: set[tuple[int, int]] = set()
        #: (producer id, epoch) → what its producer was told (KIP-890: one transaction per epoch).
        self.told: dict[tuple[int, int], bool] = {}
        self.checked = 0
        self.last: TransactionMetadata | None = None
        self.marked: set[TopicPartition] = set()

    # Requests

    @rule(slot=slots, bump=st.booleans())
    def init(self, slot: int, bump: bool) -> None:
        producer = self.producers[slot]
        known = (producer.producer_id, producer.epoch) if bump else (-1, -1)
        decision = init_decision(self.runtime, InitProducerIdRequest("x", 60_000, *known))
        for response in self.runtime.carry_out(decision):
            assert isinstance(response, InitProducerIdResponse)
            if response.error_code == ErrorCode.NONE:
                now = (response.producer_id, response.producer_epoch)
                assert bump or now not in self.given, "two producers with one epoch"
                self.given.add(now)
                producer.producer_id, producer.epoch = now

    @rule(slot=slots, partition=partitions, late=st.booleans())
    def produce(self, slot: int, partition: TopicPartition, late: bool) -> None:
        producer = self.producers[slot]
        who = (producer.producer_id, producer.epoch)
        if producer.version == TransactionVersion.V0:
            self.runtime.carry_out(add_decision(self.runtime, *who, partition, version=TransactionVersion.V0))
            decision = add_decision(self.runtime, *who, partition, verify_only=True)
        else:
            decision = add_decision(self.runtime, *who, partition)
        for response in self.runtime.carry_out(decision):
            assert isinstance(response, AddPartitionsToTxnResult)
            if errors(response) != [ErrorCode.NONE]:
                continue
            current = self.runtime.shard.get("x")
            assert current is not None
            assert (current.producer_id, current.producer_epoch) == who, "a fenced producer was let in"
            if late and producer.version == TransactionVersion.V2:
                self.late_writes.append((partition, *who))
            else:
                self.partitions[partition].write(*who)

    @precondition(lambda self: self.late_writes)
    @rule(data=st.data())
    def write_arrives(self, data: st.DataObject) -> None:
        partition, producer_id, epoch = self.late_writes.pop(data.draw(st.integers(0, len(self.late_writes) - 1)))
        self.partitions[partition].write(producer_id, epoch)

    @rule(slot=slots, commit=st.booleans())
    def end(self, slot: int, commit: bool) -> None:
        producer = self.producers[slot]
        if producer.producer_id >= 0:
            producer.last_end = (producer.producer_id, producer.epoch, commit)
            self.send_end(producer)

    @rule(slot=slots, other_way=st.booleans())
    def end_again(self, slot: int, other_way: bool) -> None:
        producer = self.producers[slot]
        if producer.last_end is not None:
            producer_id, epoch, commit = producer.last_end
            producer.last_end = (producer_id, epoch, commit != other_way)
            self.send_end(producer)

    def send_end(self, producer: Producer) -> None:
        assert producer.last_end is not None
        producer_id, epoch, commit = producer.last_end
        for response in self.runtime.carry_out(
            end_decision(self.runtime, producer_id, epoch, commit=commit, version=producer.version)
        ):
            assert isinstance(response, EndTxnResponse)
            if response.error_code == ErrorCode.NONE and producer.version == TransactionVersion.V2:
                assert self.told.setdefault((producer_id, epoch), commit) == commit
                if (producer.producer_id, producer.epoch) == (producer_id, epoch):
                    producer.producer_id, producer.epoch = response.producer_id, response.producer_epoch

    @rule(slot=slots, partition=partitions, commit=st.booleans())
    def whole_transaction(self, slot: int, partition: TopicPartition, commit: bool) -> None:
        self.init(slot, bump=False)
        self.produce(slot, partition, late=False)
        self.end(slot, commit)
        if self.runtime.effects:
            self.check_log()
            self.markers([ErrorCode.NONE] * len(PARTITIONS), twice=False)

    # Appends that take their time

    @rule(slot=slots, commit=st.booleans(), partition=partitions, kind=st.sampled_from(["init", "add", "end"]))
    def decide_and_hold(self, slot: int, commit: bool, partition: TopicPartition, kind: str) -> None:
        producer = self.producers[slot]
        who = (producer.producer_id, producer.epoch)
        if kind == "init":
            decision = init_decision(self.runtime)
        elif kind == "add":
            decision = add_decision(self.runtime, *who, partition, version=producer.version)
        else:
            decision = end_decision(self.runtime, *who, commit=commit, version=producer.version)
        if decision.records:
            self.held.append(decision)

    @precondition(lambda self: self.held)
    @rule()
    def held_append_succeeds(self) -> None:
        self.runtime.carry_out(self.held.pop())  # its producer has gone away: nobody hears the answer

    @precondition(lambda self: self.held)
    @rule()
    def held_append_fails(self) -> None:
        self.runtime.carry_out(self.runtime.shard.append_failed(self.held.pop(), ErrorCode.NOT_ENOUGH_REPLICAS))

    @rule()
    def next_append_fails(self) -> None:
        self.runtime.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]

    # Markers, time, crashes

    @precondition(lambda self: self.runtime.effects)
    @rule(results=st.lists(st.sampled_from(RETRIABLE_MARKER_ERRORS), min_size=3, max_size=3), twice=st.booleans())
    def markers(self, results: list[ErrorCode], twice: bool) -> None:
        effect = self.runtime.effects.pop(0)
        found = dict(zip(effect.partitions, results, strict=False))
        self.mark(effect, [partition for partition, error in found.items() if error == ErrorCode.NONE])
        self.runtime.report(effect, found)
        self.reported.append(effect)
        if twice:
            self.runtime.report(effect, found)

    @precondition(lambda self: self.reported)
    @rule(data=st.data())
    def markers_of_long_ago_are_reported(self, data: st.DataObject) -> None:
        effect = data.draw(st.sampled_from(self.reported))
        current = self.last
        assert current is not None
        if (effect.producer_id, effect.producer_epoch) != (current.producer_id, current.producer_epoch):
            self.runtime.report(effect, dict.fromkeys(PARTITIONS, ErrorCode.NONE))

    def mark(self, effect: WriteMarkers, written: list[TopicPartition]) -> None:
        decided = self.last
        assert decided is not None
        assert decided.state in PREPARED_STATES
        assert (decided.producer_id, decided.producer_epoch) == (effect.producer_id, effect.producer_epoch)
        assert effect.commit == (decided.state == TransactionState.PREPARE_COMMIT)
        for partition in written:
            self.partitions[partition].mark(effect.producer_id, effect.producer_epoch, effect.commit)
            self.marked.add(partition)

    @rule(delta_ms=st.sampled_from([1, 100, 30_000, 61_000]))
    def time_passes(self, delta_ms: int) -> None:
        self.runtime.pass_time(delta_ms)

    @rule(compacted=st.booleans(), appended=st.booleans())
    def crash(self, compacted: bool, appended: bool) -> None:
        if self.held and appended:
            self.runtime.log.extend(self.held[0].records)
            self.check_log()
        self.held = []
        self.runtime.reload(compacted=compacted)

    # What must hold

    @invariant()
    def check_log(self) -> None:
        """Epochs never go back, and nothing completes before its markers."""
        for record in self.runtime.log[self.checked :]:
            txn, before = decoded(record), self.last
            assert txn is not None
            if before is not None:
                if txn.producer_id == before.producer_id:
                    assert txn.producer_epoch >= before.producer_epoch
                else:
                    assert txn.producer_id > before.producer_id
                if txn.state in PREPARED_STATES:
                    assert before.state not in PREPARED_STATES
                    self.marked = set()
                if before.state in PREPARED_STATES:
                    commit = before.state == TransactionState.PREPARE_COMMIT
                    complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
                    assert txn.state == complete
                    assert self.marked >= before.partitions
            self.last = txn
        self.checked = len(self.runtime.log)

    def teardown(self) -> None:
        """Everybody is gone; time passes until nothing is open, and the outcomes are those that were told."""
        self.runtime.append_errors = []
        for decision in self.held:
            self.runtime.carry_out(self.runtime.shard.append_failed(decision, ErrorCode.NOT_ENOUGH_REPLICAS))
        for _ in range(4):
            self.runtime.pass_time(61_000)
            while self.runtime.effects:
                self.check_log()
                effect = self.runtime.effects.pop(0)
                self.mark(effect, list(effect.partitions))
                self.runtime.report(effect, dict.fromkeys(effect.partitions, ErrorCode.NONE))
        self.check_log()
        for partition, producer_id, epoch in self.late_writes:
            self.partitions[partition].write(producer_id, epoch)
        for model in self.partitions.values():
            assert model.open == {}, "a transaction is left open"
            for (producer_id, epoch), outcomes in model.outcomes.items():
                if (producer_id, epoch) in self.told:
                    assert outcomes == [self.told[producer_id, epoch]]


Interleavings.TestCase.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)
TestInterleavings = Interleavings.TestCase
