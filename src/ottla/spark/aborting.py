"""How a driver aborts transactions of which no task has told it: of attempts that lost, and of tasks that did not end.

Without that they hold back readers until the next claim or `transaction.timeout.ms`. A driver finds them by their ids.
What it has found is its own only if it was not replaced by then: so it asks for that afterwards, and ends each
transaction as the producer that it found. What a newer driver's tasks have begun is not touched.

It asks by the end of its own transaction, which is none or its decision. That is answered by the epoch alone. To take
over its id instead would abort a newer driver's decision that is on its way (see `Fence`).
"""

import re
from collections.abc import Collection, Sequence

from ottla.spark.ids import slot_of, slot_pattern
from ottla.spark.ledger import Handle, Ledger
from ottla.spark.requests import Ended, EndTransactions, Fence, FindOpen, InitProducer, LetTasksEnd, ReadLedger, Steps


def abort_losers(sink: str, driver: Handle) -> Steps:
    """With speculation, when all that is decided has ended: abort the attempts whose report Spark did not take.

    The next claim aborts an attempt that opens its transaction later.
    """
    losers = _slots((yield FindOpen(slot_pattern(sink))), sink)
    if losers:
        outcomes: Sequence[Ended] = yield EndTransactions((driver,), commit=False)
        if outcomes[0] is not Ended.FENCED:
            yield Fence(losers)


def abort_unfinished(sink: str, driver: Handle, slots: Collection[int]) -> Steps:
    """Abort all that is open of a batch under the claim of `driver`, when tasks of `slots` have not reported.

    Such a task may have its transaction still before it: Spark ends it a short time after the job. So what is not found
    at first is looked for once more. What fails here is left to recovery.
    """
    expected, holder = set(slots), driver
    for is_last in (False, True):
        found = _slots((yield FindOpen(slot_pattern(sink))), sink)
        if found:
            # A batch is not decided before all tasks have reported. This holds though somebody had lost their reports.
            held: Handle | None = yield from held_undecided(driver, holder)
            if held is None:
                return
            holder = held
            yield Fence(found)
        expected -= {slot_of(handle.transactional_id) for handle in found}
        if not expected or is_last:
            return
        yield LetTasksEnd()


def held_undecided(driver: Handle, holder: Handle) -> Steps:
    """The handle by which the claim of `driver` is held, if it has decided nothing and no newer driver has claimed.

    `holder` is the one of the time before. From now on the claim decides nothing; None is the answer else.
    """
    outcomes: Sequence[Ended] = yield EndTransactions((holder,), commit=False)
    if outcomes[0] is Ended.YES:
        return holder
    if outcomes[0] is Ended.FENCED:
        return None  # a newer driver has claimed the sink, and has ended what it found
    # It is decided; or in the first protocol there is nothing to abort yet. With the next epoch nothing of ours is on
    # its way any more, and what came before is in the ledger.
    taken: Handle | None = yield InitProducer(holder.transactional_id, holder)
    return None if taken is None or has_decided((yield ReadLedger()), driver) else taken


def has_decided(ledger: Ledger, driver: Handle) -> bool:
    """Whether a batch is decided under the claim of `driver`. Each batch has a claim of its own."""
    return any(decision.driver == driver for decision in ledger.decisions().values())


def _slots(found: Collection[Handle], sink: str) -> tuple[Handle, ...]:
    pattern = slot_pattern(sink)
    return tuple(handle for handle in found if re.match(pattern, handle.transactional_id))
