"""Exactly once, as decisions: what a driver and a task ask of Kafka, and what each answer means.

Theory of operation. A micro-batch of the sink S goes through these steps; a crash is allowed between any two requests.

    driver   claim     InitProducerId of S's driver  every earlier driver is fenced, its last decision in or out
                       read the ledger               decided but not done?  end those slots' transactions
                       list S's slots                open without decision?  abort them
    task n   write     InitProducerId of S's slot n  every earlier attempt of the slot is fenced and aborted; with
                                                     speculation attempts have ids of their own, and only the claim and
                                                     the commit abort those whose handle no decision names
                       produce rows and marker       flushed; the transaction stays open; its handle goes to the driver
    driver   commit    decision, in the driver's transaction, with the source's offsets     <- the commit point
                       EndTxn(commit) for every handle, then done

The transactional ids are those of `ottla.spark.ids`.

What makes it right:

* Decisions are totally ordered by claims: a decision needs the claim's epoch, and a later claim has raised it.
* A claim knows the fate of every slot: recovery drives all transactions of earlier decisions, and all open ones, to
  an end before it reads the ledger for the last time. So a slot that is committed is never written again, and one
  that is not committed can no longer become so.
* A handle is only ever committed by a decision. A zombie task may abort a transaction by taking over its id, never
  commit one. A decided transaction that is lost this way (or by its time-out) makes the commit fail; the replay of the
  batch writes that slot again and checks by digest that the slots committed before are the same.
* A replay is known by more than its number. Spark writes `offsets/N` into the checkpoint once, before batch N runs, and
  replays from it; so the decision holds that file's digest. A batch N that was planned anew has another file: it is no
  replay, although its number is known.
* An unknown outcome is an error. The next claim finds out.

The functions are generators: they yield a request, are sent its answer, and return their result. The shell
(`spark.kafka`) runs them against Kafka, the tests against a model of it with every crash and interleaving.
Requests raise UnknownOutcomeError into the generator when no answer can be had; nothing here catches it.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from ottla.base.errors import ConfigError
from ottla.base.require import require
from ottla.spark.errors import InDoubtError, SinkFencedError, SlotsLostError
from ottla.spark.ids import driver_id, former_driver_id, former_slot_pattern, slot_pattern
from ottla.spark.ledger import (
    NO_PLAN,
    BatchKey,
    Decision,
    Done,
    Handle,
    Ledger,
    LedgerRecord,
    Plan,
    QueryPast,
    SlotDecision,
    SlotMarker,
)

#: Offsets of the source to commit: group id, then topic, then partition, the offset of the next record to read.
GroupOffsets = Mapping[str, Mapping[str, Mapping[int, int]]]


class InitProducer(NamedTuple):
    """Take over `transactional_id`: what it has open is ended, earlier holders are fenced. Answer: Handle."""

    transactional_id: str


class ReadLedger(NamedTuple):
    """Read the ledger up to its high watermark of now. Answer: Ledger."""


class ListOpen(NamedTuple):
    """Find the transactional ids that match `pattern` and are in a transaction. Answer: list of ids."""

    pattern: str


class EndTransactions(NamedTuple):
    """End each handle's transaction, repeating with the same epoch until the answer is final. Answer: Ended of each."""

    handles: tuple[Handle, ...]
    commit: bool


class AppendInTransaction(NamedTuple):
    """Begin `handle`'s transaction: write the record to the ledger, the offsets to their groups. Answer: Appended."""

    handle: Handle
    record: LedgerRecord
    offsets: GroupOffsets


class Append(NamedTuple):
    """Write the record to the ledger, in no transaction. Answer: None."""

    record: LedgerRecord


class Ended(Enum):
    """The final answer to EndTxn."""

    YES = "the transaction is ended as asked, now or before"
    GONE = "it is not this handle's any more: fenced, timed out, expired, or ended the other way"


class Appended(Enum):
    """The final answer to a transactional write."""

    YES = "written and flushed"
    FENCED = "a newer producer holds the transactional id"


Request = InitProducer | ReadLedger | ListOpen | EndTransactions | AppendInTransaction | Append
#: Answers are untyped here: each request's docstring names its own.
Steps = Generator[Request, Any, Any]


class Claim(NamedTuple):
    """The right to commit one batch, and what the ledger proved when it was taken. The driver sends it to its tasks."""

    sink: str
    driver: Handle
    past: dict[str, QueryPast]
    #: What recovery did, for logs: slots committed for earlier decisions, and open transactions aborted.
    recovered: int = 0
    aborted: int = 0

    def only_for(self, query: str) -> "Claim":
        """With no more of the past than a batch of `query` has to do with."""
        return self._replace(past={name: past for name, past in self.past.items() if name == query or past.committed})


def claim_sink(sink: str) -> Steps:
    """Fence earlier drivers, finish or abort what they left. Returns a Claim."""
    driver: Handle = yield InitProducer(driver_id(sink))
    ledger: Ledger = yield ReadLedger()
    patterns = [slot_pattern(sink)]
    if ledger.has_former_ids:
        # Only then, for without such a sink these ids are an application's. Read again: the decision that this driver
        # had on its way is in or out for good now.
        yield InitProducer(former_driver_id(sink))
        ledger = yield ReadLedger()
        patterns.append(former_slot_pattern(sink))
    handles = tuple(slot.handle for d in ledger.undone() for slot in d.slots if slot.handle is not None)
    outcomes: Sequence[Ended] = ()
    if handles:
        outcomes = yield EndTransactions(handles, commit=True)
    committed = {h.transactional_id for h, outcome in zip(handles, outcomes, strict=True) if outcome is Ended.YES}
    left_open: set[str] = set()
    for pattern in patterns:
        listed: list[str] = yield ListOpen(pattern)
        left_open |= {name for name in listed if re.match(pattern, name)}
    for name in sorted(left_open | committed):
        # Not only an abort: it also waits until a commit's markers are written, and fences zombie tasks. An id whose
        # handle is gone, and that has nothing open, is somebody else's by now.
        yield InitProducer(name)
    if handles or left_open:
        ledger = yield ReadLedger()
    finished = [d for d in ledger.undone() if ledger.past()[d.key.query].complete >= d.key.batch]
    for decision in finished:
        yield Append(Done(decision.key))
    aborted = len(left_open - {handle.transactional_id for handle in handles})
    return Claim(sink, driver, ledger.past(), len(committed), aborted)


class SlotTask(Enum):
    """What a task has to do with its slot."""

    WRITE = "write it"
    VERIFY = "it is committed, others of the batch are not: compare the digest"
    SKIP = "the whole batch is committed"


def slot_task(
    claim: Claim, key: BatchKey, slot: int, topic: str | None, *, by_option: bool = False
) -> tuple[SlotTask, SlotMarker | None]:
    """What to do with `slot` of batch `key`, and the marker to compare with. `topic` is the option's.

    `by_option`: the user has numbered the batch, not Spark with a checkpoint.

    Raises InDoubtError; ConfigError if the rest of a batch would go to another topic.
    """
    _check_nothing_is_left_behind(claim, key)
    past = claim.past.get(key.query, QueryPast())
    if key.batch < past.latest:
        why = f"batch {past.latest} is decided already; " + (
            f"the option batchId has to grow from write to write, and only of the last one the ledger tells whether it "
            f"is written. If batch {key.batch} is missing in the output, write it under another queryId"
            if by_option
            else "the checkpoint was rolled back, or another query shares it"
        )
        raise InDoubtError(claim.sink, key.query, key.batch, why)
    if key.batch == past.complete:
        return SlotTask.SKIP, None
    if key.batch > past.latest and past.latest > past.complete:
        why = "not all of its slots are committed, and Spark went on without it"
        raise InDoubtError(claim.sink, key.query, past.latest, why)
    if past.committed and past.plan.topic != topic:
        raise ConfigError(
            f"sink {claim.sink}: a part of batch {key.batch} of query {key.query} is committed to "
            f"{_target(past.plan.topic)}, and the rest would go to {_target(topic)}: set the option topic as it was "
            "until this batch is complete, then change it"
        )
    marker = next((m for m in past.committed if m.slot == slot), None)
    return (SlotTask.VERIFY, marker) if marker else (SlotTask.WRITE, None)


def _check_nothing_is_left_behind(claim: Claim, key: BatchKey) -> None:
    """A half committed batch can only be completed by its own query: another one must not hide it."""
    for query, past in claim.past.items():
        if query != key.query and past.committed:
            why = (
                f"slots {[marker.slot for marker in past.committed]} are committed, the transactions of others were "
                f"lost, and {key.query} is another query. Run {query} again from its checkpoint to complete the batch; "
                "what cannot be run again has to be repaired in the output, before a write under a new sink.id"
            )
            raise InDoubtError(claim.sink, query, past.latest, why)


def _target(topic: str | None) -> str:
    return "the topics of the column topic" if topic is None else f"topic {topic}"


def check_same(claim: Claim, expected: SlotMarker, rows: int, digest: str) -> None:
    """Raise InDoubtError unless a replayed slot has the rows that were committed for it."""
    if (rows, digest) != (expected.rows, expected.digest):
        why = (
            f"slot {expected.slot} was committed with {expected.rows} rows (digest {expected.digest}) but its replay "
            f"has {rows} rows (digest {digest}); the query gives other rows, or another order, when it runs again, or "
            "its checkpoint was edited"
        )
        raise InDoubtError(claim.sink, expected.key.query, expected.key.batch, why)


class SlotReport(NamedTuple):
    """What a task sends to the driver. `handle` is set when, and only when, it has left a transaction open."""

    claim: Claim
    key: BatchKey
    slot: int
    task: SlotTask
    rows: int
    digest: str
    handle: Handle | None
    #: Whether other attempts at slots may run beside those that are reported.
    speculation: bool = False


def commit_batch(reports: Sequence[SlotReport], offsets: GroupOffsets, plan: Plan) -> Steps:
    """Decide the batch and end its slots. Safe to repeat with the same reports, in any process. Returns None.

    Raises SinkFencedError (nothing of this batch will be committed by this driver), SlotsLostError (a restart
    completes the batch) or InDoubtError.
    """
    require(reports, "Spark sends at least one message for every batch")
    claim, key = reports[0].claim, reports[0].key
    require(all(r.key == key and r.claim.driver == claim.driver for r in reports), "reports of one batch agree")
    _check_is_a_replay(claim, key, plan)
    if all(report.task is SlotTask.SKIP for report in reports):
        return
    _check_no_slot_is_missing(claim, key, reports)
    handles = tuple(report.handle for report in reports if report.handle is not None)
    if not handles and not offsets and not any(report.task is SlotTask.VERIFY for report in reports):
        return
    slots = tuple(SlotDecision(r.slot, r.rows, r.digest, r.handle) for r in sorted(reports, key=lambda r: r.slot))
    decision = Decision(key, claim.driver, slots, plan)
    yield from _decide(claim, decision, offsets)
    if handles:
        outcomes: Sequence[Ended] = yield EndTransactions(handles, commit=True)
        lost = [h.transactional_id for h, outcome in zip(handles, outcomes, strict=True) if outcome is Ended.GONE]
        if lost:
            raise SlotsLostError(
                f"sink {claim.sink}: batch {key.batch} of query {key.query} was decided, but the transactions of "
                f"{', '.join(lost)} had been ended by another attempt or by transaction.timeout.ms; "
                "start the query again to write these slots"
            )
        if any(report.speculation for report in reports):
            yield from _abort_losers(claim, handles)
    yield Append(Done(key))


def _abort_losers(claim: Claim, decided: tuple[Handle, ...]) -> Steps:
    """Attempts whose report Spark did not take hold back readers until the next claim; so end them now.

    One that opens its transaction later is left to the next claim.
    """
    pattern = slot_pattern(claim.sink)
    listed: list[str] = yield ListOpen(pattern)
    for name in sorted({name for name in listed if re.match(pattern, name)} - {h.transactional_id for h in decided}):
        yield InitProducer(name)


def committed_plan(claim: Claim, key: BatchKey) -> Plan:
    """What batch `key` was planned to do, if any of its rows are committed; NO_PLAN else.

    A batch that was decided and lost all its slots may be planned anew: nothing of the old plan can be seen.
    """
    past = claim.past.get(key.query, QueryPast())
    return past.plan if key.batch == past.latest and (past.committed or key.batch == past.complete) else NO_PLAN


def _check_is_a_replay(claim: Claim, key: BatchKey, plan: Plan) -> None:
    """Skipped or completed may be the batch that was committed, not a new one with the same number."""
    decided = committed_plan(claim, key).offsets
    if decided is None or plan.offsets is None or decided == plan.offsets:
        return
    why = (
        f"the checkpoint's offsets/{key.batch} is not the one that it was planned by: the checkpoint was edited or "
        "restored, or lost its last files"
    )
    put_back = f"Put the file offsets/{key.batch} of the committed batch back"
    slots = [marker.slot for marker in claim.past[key.query].committed]
    if slots:
        why = (
            f"slots {slots} of a batch of this number are committed, but {why}, and what it reads now cannot complete "
            f"that batch. {put_back}, it will be completed; or repair the output, and go on with a new checkpoint and "
            "a new sink.id"
        )
    else:
        why = (
            f"a batch of this number is committed, but {why}, and to skip the batch would lose what it reads now. "
            f"{put_back}; or go on with a new checkpoint, a new sink.id, and startingOffsets behind what is committed"
        )
    raise InDoubtError(claim.sink, key.query, key.batch, why)


def _check_no_slot_is_missing(claim: Claim, key: BatchKey, reports: Sequence[SlotReport]) -> None:
    """Every slot that is committed for this batch must have been verified by a task of this run."""
    past = claim.past.get(key.query, QueryPast())
    verified = {report.slot for report in reports if report.task is SlotTask.VERIFY}
    missing = [m.slot for m in past.committed if m.key == key and m.slot not in verified]
    if missing:
        why = f"slots {missing} are committed, but its replay has only {len(reports)} slots"
        raise InDoubtError(claim.sink, key.query, key.batch, why)


def _decide(claim: Claim, decision: Decision, offsets: GroupOffsets) -> Steps:
    appended: Appended = yield AppendInTransaction(claim.driver, decision, offsets)
    if appended is Appended.YES:
        outcomes: Sequence[Ended] = yield EndTransactions((claim.driver,), commit=True)
        if outcomes[0] is Ended.YES:
            return
    # Fenced. By a newer driver, or by ourselves: commit() may run twice, and the first run's decision stands.
    ledger: Ledger = yield ReadLedger()
    standing = ledger.decision(decision.key.query)
    if standing is None or (standing.key, standing.driver) != (decision.key, decision.driver):
        # Nothing is aborted here: what is open belongs to the newer driver now.
        raise SinkFencedError(
            f"sink {claim.sink}: another query or driver has taken over while batch {decision.key.batch} was written; "
            "this one stops. Two queries must not share a sink.id"
        )


def abort_batch(reports: Sequence[SlotReport]) -> Steps:
    """Release the open transactions of a batch that failed before its decision. Best effort: recovery does the rest.

    Safe for a fenced driver as well: a handle's epoch keeps the request away from any later transaction of the id.
    """
    handles = tuple(report.handle for report in reports if report.handle is not None)
    if not handles:
        return
    claim, key = reports[0].claim, reports[0].key
    ledger: Ledger = yield ReadLedger()
    standing = ledger.decision(key.query)
    if standing is not None and standing.key.batch >= key.batch:
        return  # decided: it is the next driver's to commit
    # Our own decision may still be on its way (its outcome was unknown). Taking part in that race would tear the batch.
    outcomes: Sequence[Ended] = yield EndTransactions((claim.driver,), commit=False)
    if outcomes[0] is Ended.YES:
        yield EndTransactions(handles, commit=False)
