"""The exactly-once protocol: what a driver and a task ask of Kafka, and what each answer means.

Theory of operation. A micro-batch of the sink S goes through these steps. A crash may come between any two requests.

    driver   claim     InitProducerId of S's driver  every earlier driver is fenced; its last decision is final
                       read the ledger               decided but not done?  end those slots' transactions
                       list S's slots                open without decision?  abort them
    task n   write     InitProducerId of S's slot n  every earlier attempt at the slot is fenced and aborted; with
                                                     speculation each attempt has an id of its own, and the next claim
                                                     or commit aborts those that no decision names
                       produce rows and marker       flushed; the transaction stays open; its handle goes to the driver
    driver   commit    decision, in the driver's transaction, with the source's offsets     <- the commit point
                       EndTxn(commit) for every handle, then done

The transactional ids are those of `ottla.spark.ids`.

What makes it right:

* The claims put decisions in order: a decision needs the epoch of its claim, and every later claim raises the epoch.
* A claim knows the outcome of every slot. Recovery ends all transactions of earlier decisions, and all open ones,
  before it reads the ledger for the last time. So a slot that is committed is never written again, and a slot that is
  not committed cannot be committed later.
* Only a decision commits a handle. A zombie task can abort a transaction, by taking over its id, but never commit one.
  When a decided transaction is lost in this way, or by its time-out, the commit fails. The replay of the batch then
  writes that slot again, and checks by digest that the slots committed before have the same rows.
* The number of a batch alone does not make it a replay. Spark writes `offsets/N` into the checkpoint once, before batch
  N runs, and replays from that file; so the decision holds the file's digest. If batch N was planned anew, the file is
  another one, and the batch is no replay.
* The ledger that is read has every record that was written before, whoever answers. No request of Kafka promises that:
  a leader that was deposed, and does not know it, tells of a log that ends before the last decision. But it cannot have
  a record acknowledged by all replicas in sync. So who reads writes a record first, and reads until it is there.
* An unknown outcome is an error. The next claim finds out.

With `atomicity=batch` a task opens no transaction: it stages its rows, where no reader sees them. The driver's
transaction, with the decision and the offsets, takes them in, and done with it. So a batch is committed whole or not at
all, and there are no slots to end. What an attempt has staged that nobody names is never read (ADR 0019).

The functions are generators: they yield a request (`requests`), are sent its answer, and return their result. The shell
(`ledger_io`) runs them against Kafka; the tests run them against a model of Kafka, with every crash and every order of
steps. When a request gets no answer, the shell raises UnknownOutcomeError and the generator goes no further.
"""

import re
from collections.abc import Sequence
from enum import Enum
from itertools import chain
from typing import NamedTuple

from ottla.base.errors import ConfigError
from ottla.base.require import require
from ottla.spark.aborting import abort_losers, has_decided, held_undecided
from ottla.spark.errors import InDoubtError, SinkFencedError, SlotsLostError
from ottla.spark.ids import driver_id, former_driver_id, former_slot_pattern, slot_pattern
from ottla.spark.ledger import (
    NO_PLAN,
    UNNAMED,
    BatchKey,
    Decision,
    Done,
    Handle,
    Ledger,
    LedgerRecord,
    Leftover,
    Plan,
    QueryPast,
    SlotDecision,
    SlotMarker,
    encode,
)
from ottla.spark.requests import (
    Append,
    Appended,
    AppendInTransaction,
    CopyStaged,
    Ended,
    EndTransactions,
    ForgetStaged,
    GroupOffsets,
    InitProducer,
    ListOpen,
    ReadLedger,
    Steps,
)
from ottla.spark.staged import Staged

#: When a claim has found so many records that can go, it looks for no more: it carries them to every task and back. It
#: takes in the last query with all of its records, so a ledger gets shorter however many slots its queries have.
_ENOUGH_TO_FORGET = 500
#: Most bytes of a decision and what goes with it. They are one record batch, and a topic takes a megabyte unless it is
#: set otherwise (`max.message.bytes`). A larger decision is written alone.
_DECISION_BYTES = 524_288


class Claim(NamedTuple):
    """The right to commit one batch, and what the ledger proved when it was taken. The driver sends it to its tasks.

    The report of slot 0 brings it back to commit(). It may be long, and the others say only whose it is.
    """

    sink: str
    driver: Handle
    past: dict[str, QueryPast]
    #: What recovery did, for logs: slots committed for earlier decisions, and open transactions aborted.
    recovered: int = 0
    aborted: int = 0
    #: What the decision removes from the ledger: see `Ledger.leftovers`.
    forget: tuple[Leftover, ...] = ()

    def only_for(self, query: str) -> "Claim":
        """The claim with only that part of the past which a batch of `query` needs."""
        return self._replace(past={name: past for name, past in self.past.items() if name == query or past.committed})

    def reported_by(self, slot: int) -> "Claim":
        """What of the claim a slot's report carries."""
        return self if slot == 0 else Claim(self.sink, self.driver, {})


def claim_sink(sink: str) -> Steps:
    """Fence earlier drivers; commit or abort what they left open. Returns a Claim."""
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
        # InitProducerId does more than abort: it waits until a commit's markers are written, and fences zombie tasks.
        # An id whose handle is gone, and that has nothing open, is used by somebody else now.
        yield InitProducer(name)
    if handles or left_open:
        ledger = yield ReadLedger()
    finished = [d for d in ledger.undone() if ledger.past()[d.key.query].complete >= d.key.batch]
    for decision in finished:
        yield Append(Done(decision.key, decision.driver))
    aborted = len(left_open - {handle.transactional_id for handle in handles})
    return Claim(sink, driver, ledger.past(), len(committed), aborted, ledger.leftovers(_ENOUGH_TO_FORGET))


def unnamed_batch(claim: Claim) -> BatchKey:
    """What a batch write without queryId is called in the ledger. Run again it is another write, with a new number."""
    return BatchKey(UNNAMED, claim.past.get(UNNAMED, QueryPast()).latest + 1)


class SlotTask(Enum):
    """What a task has to do with its slot."""

    WRITE = "write it"
    VERIFY = "it is committed, others of the batch are not: compare the digest"
    SKIP = "the whole batch is committed"


def slot_task(
    claim: Claim, key: BatchKey, slot: int, topic: str | None, *, by_option: bool = False
) -> tuple[SlotTask, SlotMarker | None]:
    """What to do with `slot` of batch `key`, and the marker to compare with. `topic` is the option's.

    With `by_option` the batch's number comes from the user's options and not from Spark and a checkpoint.

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
    if key.batch > past.latest and past.latest > past.complete and key.query != UNNAMED:
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
    """Raise if another query's batch is half committed: only its own query can complete it, and nothing may hide it."""
    for query, past in claim.past.items():
        if not past.committed or query == key.query != UNNAMED:
            continue
        slots = [marker.slot for marker in past.committed]
        what_to_do = (
            f"{key.query} is another query. Run {query} again from its checkpoint to complete the batch; what cannot "
            "be run again has to be repaired in the output, before a write under a new sink.id"
        )
        if query == UNNAMED:
            what_to_do = (
                "a write without queryId has no replay that could complete it. Repair the output, then write under a "
                "new sink.id"
            )
        why = f"slots {slots} are committed, the transactions of others were lost, and {what_to_do}"
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
    """What a task sends to the driver. `handle` is set if the task has left a transaction open, and only then."""

    #: See `Claim.reported_by`.
    claim: Claim
    key: BatchKey
    slot: int
    task: SlotTask
    rows: int
    digest: str
    handle: Handle | None
    #: Whether Spark may run other attempts at the same slots.
    speculation: bool = False
    #: With `atomicity=batch`, instead of a handle: the rows, if there are any.
    staged: Staged | None = None


def claim_of(reports: Sequence[SlotReport]) -> Claim:
    """The claim of a batch whose slots have all reported."""
    return min(reports, key=lambda report: report.slot).claim


def commit_batch(reports: Sequence[SlotReport], offsets: GroupOffsets, plan: Plan) -> Steps:
    """Decide the batch and end its slots. Safe to repeat with the same reports, in any process. Returns None.

    Raises SinkFencedError (nothing of this batch will be committed by this driver), SlotsLostError (a restart
    completes the batch) or InDoubtError.
    """
    require(reports, "Spark sends at least one message for every batch")
    claim, key = claim_of(reports), reports[0].key
    require(all(r.key == key and r.claim.driver == claim.driver for r in reports), "reports of one batch agree")
    _check_is_a_replay(claim, key, plan)
    if all(report.task is SlotTask.SKIP for report in reports):
        return
    _check_no_slot_is_missing(claim, key, reports)
    handles = tuple(report.handle for report in reports if report.handle is not None)
    staged = tuple(report.staged for report in reports if report.staged is not None)
    require(not (handles and staged), "all tasks of a batch are of one atomicity")
    is_decided = claim.past.get(key.query, QueryPast()).latest == key.batch  # and lost slots: it has to be decided anew
    if not handles and not staged and not offsets and not is_decided:
        return
    slots = tuple(SlotDecision(r.slot, r.rows, r.digest, r.handle) for r in sorted(reports, key=lambda r: r.slot))
    decision = Decision(key, claim.driver, slots, plan)
    yield from _decide(claim, decision, offsets, staged)
    if staged:
        yield ForgetStaged(staged)
        return
    if handles:
        outcomes: Sequence[Ended] = yield EndTransactions(handles, commit=True)
        lost = [h.transactional_id for h, outcome in zip(handles, outcomes, strict=True) if outcome is not Ended.YES]
        if lost:
            raise SlotsLostError(
                f"sink {claim.sink}: batch {key.batch} of query {key.query} was decided, but the transactions of "
                f"{', '.join(lost)} had been ended by another attempt or by their time-out. If a batch takes as long, "
                "raise kafka.transaction.timeout.ms or make it smaller; then start the query again to write these slots"
            )
        if any(report.speculation for report in reports):
            yield from abort_losers(claim.sink, claim.driver)
    yield Append(Done(key, claim.driver))


def committed_plan(claim: Claim, key: BatchKey) -> Plan:
    """The plan of batch `key` if any of its rows are committed, else NO_PLAN.

    A batch that was decided and then lost all its slots may be planned anew: no reader has seen rows of the old plan.
    """
    past = claim.past.get(key.query, QueryPast())
    return past.plan if key.batch == past.latest and (past.committed or key.batch == past.complete) else NO_PLAN


def _check_is_a_replay(claim: Claim, key: BatchKey, plan: Plan) -> None:
    """Raise unless this batch is the one that was committed. A new batch with the same number must not be skipped."""
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
    """Raise unless a task of this run has verified every slot that is committed for this batch."""
    past = claim.past.get(key.query, QueryPast())
    verified = {report.slot for report in reports if report.task is SlotTask.VERIFY}
    missing = [m.slot for m in past.committed if m.key == key and m.slot not in verified]
    if missing:
        why = f"slots {missing} are committed, but its replay has only {len(reports)} slots"
        raise InDoubtError(claim.sink, key.query, key.batch, why)


def _decide(claim: Claim, decision: Decision, offsets: GroupOffsets, staged: tuple[Staged, ...]) -> Steps:
    appended = Appended.YES
    records: list[LedgerRecord] = [decision]
    if staged:
        records.append(Done(decision.key, claim.driver))
        if _stands((yield ReadLedger()), decision):
            return  # commit() runs twice
        appended = yield CopyStaged(claim.driver, staged)
    if appended is Appended.YES:
        appended = yield AppendInTransaction(claim.driver, _with_leftovers(claim, decision.key, records), offsets)
    if appended is Appended.YES:
        outcomes: Sequence[Ended] = yield EndTransactions((claim.driver,), commit=True)
        if outcomes[0] is Ended.YES:
            return
    # We are fenced, by a newer driver or by ourselves: commit() may run twice, and then the first decision holds.
    if not _stands((yield ReadLedger()), decision):
        # Abort nothing here: the open transactions belong to the newer driver now.
        raise SinkFencedError(
            f"sink {claim.sink}: another query or driver has taken over while batch {decision.key.batch} was written; "
            "this one stops. Give each query a sink.id of its own"
            + ("; or the copy of the rows took longer than kafka.transaction.timeout.ms" if staged else "")
        )


def _stands(ledger: Ledger, decision: Decision) -> bool:
    """Whether this decision, or the same one of another call of commit(), is the last one of its query."""
    standing = ledger.decision(decision.key.query)
    return standing is not None and (standing.key, standing.driver) == (decision.key, decision.driver)


def _with_leftovers(claim: Claim, key: BatchKey, first: Sequence[LedgerRecord]) -> tuple[LedgerRecord, ...]:
    """These records, and after them those that make other queries short; in all `_DECISION_BYTES` at most."""
    others = (left for left in claim.forget if left.query != key.query)
    room = _DECISION_BYTES
    records: list[LedgerRecord] = []
    for record in chain(first, *(left.records() for left in others)):
        room -= sum(len(part or b"") for part in encode(claim.sink, record))
        if len(records) >= len(first) and room < 0:
            break
        records.append(record)
    return tuple(records)


def abort_batch(reports: Sequence[SlotReport]) -> Steps:
    """Abort the open transactions of a batch whose tasks have all reported, and that failed before its decision.

    What fails here is left to recovery. (Of tasks that have not reported: `ottla.spark.aborting`.)
    A fenced driver may call this too: it leaves all to the one that has replaced it.
    """
    if all(report.task is SlotTask.SKIP for report in reports):
        return
    handles = tuple(report.handle for report in reports if report.handle is not None)
    driver = reports[0].claim.driver
    if has_decided((yield ReadLedger()), driver):
        return  # the next driver commits the batch
    # Our own decision may still be on its way, because its outcome was unknown. Aborting now could tear the batch.
    if not handles:
        yield EndTransactions((driver,), commit=False)
    elif (yield from held_undecided(driver, driver)) is not None:
        yield EndTransactions(handles, commit=False)
