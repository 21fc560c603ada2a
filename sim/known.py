"""Anomalies whose cause is known and told, so that a night's run shows what is new. The list only shrinks.

Each entry recognises its own story in the history, and as little else as it can.
"""

from sim.check import Anomaly
from sim.history import Event


def known(anomaly: Anomaly, others: list[Anomaly], events: list[Event]) -> str | None:
    """Why the anomaly is expected for now; None for one that is news."""
    if anomaly.name in ("torn-transaction", "aborted-read", "lost-write") and any(
        event.what == "rules" and "transaction_version=0" in event.text for event in events[:1]
    ):
        # no bug of a client: in the first protocol an EndTxn that arrives late ends the next transaction (KIP-890)
        return "late-end-of-the-first-protocol"
    if anomaly.name == "unexpected-exception" and "InvalidTxnStateError" in anomaly.text.rsplit("\n", 2)[-2]:
        # the end of a transaction after transaction.timeout.ms: none of the kinds that the documentation promises
        return "end-after-the-timeout"
    return None
