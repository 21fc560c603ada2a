"""How an operator settles a batch that its query cannot complete: it counts as written, or as never written.

A claim does what can be done without a choice: decided slots are committed, others aborted. What is left after it is a
batch of which some slots are committed and others lost, and a query whose replay gives other rows; or a batch that is
committed, and a checkpoint that has planned another one under its number. Then somebody has to say what counts.

The records that say it are written in a transaction of the claim, so a driver that takes the sink over meanwhile
fences them: it has read the ledger as it was, and goes by that.
"""

from enum import Enum

from ottla.spark.errors import PipelineError, SinkFencedError
from ottla.spark.ledger import (
    BatchKey,
    Decision,
    Done,
    Forgotten,
    Handle,
    Ledger,
    LedgerRecord,
    SlotMarker,
)
from ottla.spark.protocol import Claim, claim_sink
from ottla.spark.requests import Appended, AppendInTransaction, Ended, EndTransactions, ReadLedger, Steps


class Settle(Enum):
    """What a batch is to count as."""

    WRITTEN = "written"
    UNWRITTEN = "unwritten"


def resolve_sink(sink: str, batch: BatchKey | None, settle: Settle | None, *, driver: Handle | None = None) -> Steps:
    """Claim the sink, and settle `batch` if both are given. Returns the Claim.

    `driver` is that of the decision which is meant; None takes any. Raises SinkFencedError if another driver has
    claimed the sink meanwhile; PipelineError if the batch is not the last one of its query any more.
    """
    if batch is not None and settle is not None:
        # Asked before the claim, too: a query that runs is not stopped for nothing.
        _require_last((yield ReadLedger()), batch, driver)
    claim: Claim = yield from claim_sink(sink)
    if batch is None or settle is None:
        return claim
    ledger: Ledger = yield ReadLedger()
    _require_last(ledger, batch, driver)
    records = settling(ledger, batch.query, settle)
    if not records:
        return claim
    appended: Appended = yield AppendInTransaction(claim.driver, records, {})
    if appended is Appended.YES:
        outcomes: list[Ended] = yield EndTransactions((claim.driver,), commit=True)
        if outcomes[0] is Ended.YES:
            return claim
    raise SinkFencedError(
        f"sink {sink}: a query or another driver has claimed it meanwhile, so nothing is settled; stop the query first"
    )


def _require_last(ledger: Ledger, batch: BatchKey, driver: Handle | None) -> None:
    """Raise PipelineError unless the last decision of the query is the one that is meant."""
    decision = ledger.decision(batch.query)
    if decision is not None and (decision.key != batch or driver not in (None, decision.driver)):
        raise PipelineError(
            f"sink {ledger.sink}: batch {batch.batch} of query {batch.query} is not the last one any more, as it was "
            f"when it was looked at: its query has decided batch {decision.key.batch} meanwhile. Nothing is settled. "
            "Stop the query, and look again"
        )


def settling(ledger: Ledger, query: str, settle: Settle) -> tuple[LedgerRecord, ...]:
    """The records that make the last batch of `query` count as `settle` says; none if it counts so already.

    Raises PipelineError if the ledger knows no decision of the query.
    """
    decision, past = ledger.decision(query), ledger.past().get(query)
    if decision is None or past is None:
        raise PipelineError(f"the ledger of sink {ledger.sink} has no decided batch of query {query}")
    if settle is Settle.WRITTEN:
        return () if past.complete >= decision.key.batch else (Done(decision.key, decision.driver),)
    forgotten: list[LedgerRecord] = []
    for record in ledger.kept(query):
        match record:
            case SlotMarker(slot=slot):
                forgotten.append(Forgotten(query, "slot", slot))
            case Decision():
                forgotten.append(Forgotten(query, "decision"))
            case Done():
                forgotten.append(Forgotten(query, "done"))
    return tuple(forgotten)
