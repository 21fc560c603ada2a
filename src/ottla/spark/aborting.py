"""How a driver aborts transactions of which no task has told it: of attempts that lost, and of tasks that did not end.

Without that they hold back readers until the next claim or `transaction.timeout.ms`. A driver finds them by their ids.
What it has found is its own only if it was not replaced by then: so it asks for that afterwards, and takes over each
transaction from the producer that it found. What a newer driver's tasks have begun is not touched.
"""

import re
from collections.abc import Collection

from ottla.spark.ids import slot_of, slot_pattern
from ottla.spark.ledger import Handle, Ledger
from ottla.spark.requests import Fence, FindOpen, InitProducer, LetTasksEnd, ReadLedger, Steps


def abort_losers(sink: str, driver: Handle) -> Steps:
    """With speculation, when all that is decided has ended: abort the attempts whose report Spark did not take.

    The next claim aborts an attempt that opens its transaction later.
    """
    losers = _slots((yield FindOpen(slot_pattern(sink))), sink)
    if losers and (yield InitProducer(driver.transactional_id, driver)) is not None:
        yield Fence(losers)


def abort_unfinished(sink: str, driver: Handle, slots: Collection[int]) -> Steps:
    """Abort all that is open of a batch under the claim of `driver`, when tasks of `slots` have not reported.

    Such a task may have its transaction still before it: Spark ends it a short time after the job. So what is not found
    at first is looked for once more. What fails here is left to recovery.
    """
    expected = set(slots)
    for may_be_deciding in (True, False):
        found = _slots((yield FindOpen(slot_pattern(sink))), sink)
        if found:
            taken: Handle | None = yield InitProducer(driver.transactional_id, driver)
            if taken is None:
                return  # a newer driver has claimed the sink, and has aborted what it found
            driver, former = taken, driver
            # A batch is not decided before all tasks have reported. This holds though somebody had lost their reports.
            if may_be_deciding and _has_decided((yield ReadLedger()), former):
                return
            yield Fence(found)
        expected -= {slot_of(handle.transactional_id) for handle in found}
        if not expected:
            return
        if may_be_deciding:
            yield LetTasksEnd()


def _slots(found: Collection[Handle], sink: str) -> tuple[Handle, ...]:
    pattern = slot_pattern(sink)
    return tuple(handle for handle in found if re.match(pattern, handle.transactional_id))


def _has_decided(ledger: Ledger, driver: Handle) -> bool:
    return any(decision.driver == driver for decision in ledger.decisions().values())
