"""Anomalies whose cause is known and told, so that a night's run shows what is new. The list only shrinks.

Each entry recognises its own story in the history, and as little else as it can.
"""

from sim.check import Anomaly
from sim.history import Event

_IN_DOUBT = "it is unknown whether records sent earlier were written"
_MANY = 5


def known(anomaly: Anomaly, others: list[Anomaly], events: list[Event]) -> str | None:
    """Why the anomaly is expected for now; None for one that is news."""
    if anomaly.name in ("flood", "never-settled", "unseen", "stuck-lso", "torn-transaction") and any(
        "AddPartitionsToTxn" in a.text for a in others if a.name == "flood"
    ):
        # first protocol: AddPartitionsToTxn that was refused for good is asked for again, for ever
        return "refused-partitions-are-asked-for-again"
    if anomaly.name in ("torn-transaction", "aborted-read", "lost-write") and any(
        event.what == "rules" and "transaction_version=0" in event.text for event in events[:1]
    ):
        # no bug of a client: in the first protocol an EndTxn that arrives late ends the next transaction (KIP-890)
        return "late-end-of-the-first-protocol"
    if anomaly.name == "unexpected-exception" and "InvalidTxnStateError" in anomaly.text.rsplit("\n", 2)[-2]:
        # the end of a transaction after transaction.timeout.ms: none of the kinds that the documentation promises
        return "end-after-the-timeout"
    if anomaly.name in ("unseen", "never-settled") and sum(_IN_DOUBT in event.text for event in events) >= _MANY:
        # after a batch was lost before an abort, every later transaction of that producer fails (suspicion 1)
        return "doubt-outlives-its-transaction"
    if anomaly.name == "false-reset" or (anomaly.name == "nonmonotonic-poll" and _was_reset(anomaly, events)):
        # OffsetForLeaderEpoch is asked for one position, and its answer is taken as one about a later position
        return "position-judged-by-an-old-answer"
    if anomaly.name == "unfenced-commit" or (
        anomaly.name == "duplicate" and " became " in anomaly.text and any(e.what == "unfenced offsets" for e in events)
    ):
        # group_metadata() of a member that has lost its membership is nobody's: nothing fences its offsets
        return "lost-member-commits-as-nobody"
    return None


def _was_reset(anomaly: Anomaly, events: list[Event]) -> bool:
    return any(e.what == "position reset" and e.who in anomaly.around and "is beyond the end" in e.text for e in events)
