"""Anomalies whose cause is known, so that a long run shows only new ones. The list only shrinks.

Each entry recognizes its own case in the history, and as little else as possible.
"""

from sim.check import Anomaly
from sim.history import Event


def known(anomaly: Anomaly, others: list[Anomaly], events: list[Event]) -> str | None:
    """The name of the known cause; None for a new anomaly."""
    if anomaly.name in ("torn-transaction", "aborted-read", "lost-write") and any(
        event.what == "rules" and "transaction_version=0" in event.text for event in events[:1]
    ):
        # not a bug of a client: in the first protocol an EndTxn that arrives late ends the next transaction (KIP-890)
        return "late-end-of-the-first-protocol"
    if anomaly.name == "unexpected-exception" and "InvalidTxnStateError" in anomaly.text.rsplit("\n", 2)[-2]:
        # the end of a transaction after transaction.timeout.ms raises an error that the documentation does not name
        return "end-after-the-timeout"
    return None
