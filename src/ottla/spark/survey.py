"""What a ledger and the transaction coordinators say of a sink together: for those who look at it (`ottla pipeline`).

Pure; `settlement` changes what is found here.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from ottla.spark.ids import PREFIX, driver_id
from ottla.spark.ledger import BatchKey, Decision, Handle, Ledger, Plan, SlotDecision

#: States of a transaction that is not over.
_OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
_SLOT_ID = re.compile(rf"{re.escape(PREFIX)}(?P<sink>[^/]+)/slot-[0-9]+(/attempt-[0-9]+)?")


class Transaction(NamedTuple):
    """A transactional id of a sink, as its coordinator describes it. `start_ms` is -1 if nothing is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    start_ms: int = -1

    @property
    def is_open(self) -> bool:
        """Whether it holds back readers of committed records."""
        return self.state in _OPEN


class SlotState(Enum):
    """What has become of a slot of a decision."""

    COMMITTED = "committed"
    EMPTY = "empty"  # it has no rows
    OPEN = "open"  # decided, and its transaction waits for its end
    LOST = "lost"  # decided, and somebody else has ended its transaction


class BatchState(Enum):
    """What has become of the last batch of a query."""

    COMPLETE = "complete"
    DECIDED = "decided"  # a claim, or `ottla pipeline resolve`, commits what is still open
    LOST = "lost"  # nothing of it is committed: its query writes it again
    HALF = "half committed"  # only its own query can complete it, by a replay that gives the same rows


class Slot(NamedTuple):
    """A slot of the last decision of a query."""

    slot: int
    state: SlotState
    rows: int
    digest: str
    transactional_id: str | None


class Batch(NamedTuple):
    """The last batch of a query: what was decided, and what has become of it."""

    key: BatchKey
    state: BatchState
    plan: Plan
    driver: Handle | None
    slots: tuple[Slot, ...]

    @property
    def lost(self) -> tuple[int, ...]:
        """The slots whose rows are missing."""
        return tuple(each.slot for each in self.slots if each.state is SlotState.LOST)


class SinkView(NamedTuple):
    """A sink: the last batch of each of its queries, and its open transactions."""

    sink: str
    batches: tuple[Batch, ...]
    #: The driver's id, if its coordinator knows it.
    driver: Transaction | None
    #: Open transactions of slots that a decision names: they are committed by the next claim.
    decided: tuple[Transaction, ...]
    #: Open transactions of slots without a decision: of a batch that is being written, or was left by a driver that
    #: has died. The next claim aborts them.
    undecided: tuple[Transaction, ...]
    #: The batch that was decided last; None if that one was given up.
    last: Batch | None = None

    def batch(self, query: str) -> Batch | None:
        """The last batch of `query`."""
        return next((each for each in self.batches if each.key.query == query), None)

    @property
    def half_committed(self) -> tuple[Batch, ...]:
        """The batches that no claim can settle."""
        return tuple(each for each in self.batches if each.state is BatchState.HALF)

    @property
    def state(self) -> str:
        """The worst that can be said of it, in a word or two."""
        states = {each.state for each in self.batches}
        if BatchState.HALF in states:
            return BatchState.HALF.value
        if BatchState.DECIDED in states:
            return BatchState.DECIDED.value
        return "writing, or left open" if self.undecided else "idle"


def sink_of(transactional_id: str) -> str | None:
    """The sink that a slot's transactional id is of; None for every other id."""
    found = _SLOT_ID.fullmatch(transactional_id)
    return None if found is None else found["sink"]


def view(ledger: Ledger, transactions: Iterable[Transaction]) -> SinkView:
    """What ledger and coordinators say. `transactions` may have those of other sinks, too."""
    mine = {each.transactional_id: each for each in transactions}
    decisions, past = ledger.decisions(), ledger.past()
    undone = {decision.key for decision in ledger.undone()}
    batches = []
    for query in sorted(past):
        decision = decisions.get(query)
        if decision is not None:
            complete = past[query].complete >= decision.key.batch
            committed = {marker.slot for marker in past[query].committed if marker.key == decision.key}
            batches.append(_batch(decision, committed, mine, complete=complete))
    named = {
        slot.handle.transactional_id
        for decision in decisions.values()
        if decision.key in undone
        for slot in decision.slots
        if slot.handle is not None and _is_its(slot.handle, mine)
    }
    opened = [each for each in mine.values() if each.is_open and sink_of(each.transactional_id) == ledger.sink]
    last = next((each for each in batches if each.key.query == ledger.last_query), None)
    return SinkView(
        ledger.sink,
        tuple(batches),
        mine.get(driver_id(ledger.sink)),
        tuple(each for each in opened if each.transactional_id in named),
        tuple(each for each in opened if each.transactional_id not in named),
        last,
    )


def _is_its(handle: Handle, transactions: Mapping[str, Transaction]) -> bool:
    """Whether the transaction that `handle` means is still open.

    While its markers are written, a coordinator of the newer protocol describes it under the next epoch.
    """
    found = transactions.get(handle.transactional_id)
    if found is None or not found.is_open or found.producer_id != handle.producer_id:
        return False
    return found.producer_epoch - handle.producer_epoch in ((0,) if found.state == "Ongoing" else (0, 1))


def _batch(
    decision: Decision, committed: set[int], transactions: Mapping[str, Transaction], *, complete: bool
) -> Batch:
    slots = tuple(_slot(each, committed, transactions, complete=complete) for each in decision.slots)
    states = {each.state for each in slots}
    if complete:
        state = BatchState.COMPLETE
    elif SlotState.LOST not in states:
        state = BatchState.DECIDED
    elif SlotState.OPEN in states or SlotState.COMMITTED in states:
        state = BatchState.HALF
    else:
        state = BatchState.LOST
    return Batch(decision.key, state, decision.plan, decision.driver, slots)


def _slot(slot: SlotDecision, committed: set[int], transactions: Mapping[str, Transaction], *, complete: bool) -> Slot:
    if not slot.rows:
        state = SlotState.EMPTY
    elif complete or slot.slot in committed:
        state = SlotState.COMMITTED
    elif slot.handle is not None and _is_its(slot.handle, transactions):
        state = SlotState.OPEN
    else:
        state = SlotState.LOST
    name = None if slot.handle is None else slot.handle.transactional_id
    return Slot(slot.slot, state, slot.rows, slot.digest, name)
