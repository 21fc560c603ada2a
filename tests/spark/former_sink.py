"""The sink's claim as it was when transactional ids had no prefix, kept to show that a sink can move on from there."""

import json
import re
from collections.abc import Sequence

from ottla.spark.ledger import Done, Handle, Ledger, LedgerRecord, encode
from ottla.spark.protocol import Claim
from ottla.spark.requests import Append, Ended, EndTransactions, InitProducer, ListOpen, ReadLedger, Steps


def driver_id(sink: str) -> str:
    """The driver's id."""
    return f"{sink}-driver"


def slot_id(sink: str, slot: int, attempt: int = 0) -> str:
    """A slot's id."""
    return f"{sink}-{slot}.{attempt}" if attempt else f"{sink}-{slot}"


def claim_sink(sink: str) -> Steps:
    """Fence earlier drivers, finish or abort what they left."""
    driver: Handle = yield InitProducer(driver_id(sink))
    ledger: Ledger = yield ReadLedger()
    handles = tuple(slot.handle for d in ledger.undone() for slot in d.slots if slot.handle is not None)
    recovered = 0
    if handles:
        outcomes: Sequence[Ended] = yield EndTransactions(handles, commit=True)
        recovered = sum(outcome is Ended.YES for outcome in outcomes)
    pattern = f"^{sink}-[0-9]+([.][0-9]+)?$"
    listed: list[str] = yield ListOpen(pattern)
    left_open = {name for name in listed if re.match(pattern, name)}
    touched = left_open | {handle.transactional_id for handle in handles}
    for name in sorted(touched):
        yield InitProducer(name)
    if touched:
        ledger = yield ReadLedger()
    for decision in [d for d in ledger.undone() if ledger.past()[d.key.query].complete >= d.key.batch]:
        yield Append(Done(decision.key))
    aborted = len(left_open - {handle.transactional_id for handle in handles})
    return Claim(sink, driver, ledger.past(), recovered, aborted)


def encode_record(sink: str, record: LedgerRecord) -> tuple[bytes, bytes]:
    """A record of the ledger as that sink wrote it: nothing says which form its ids have."""
    key, value = encode(sink, record)
    body = json.loads(value or b"")
    del body["ids"]
    return key, json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
