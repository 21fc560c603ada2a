"""When a transaction is over: Apache Kafka answers its end before the markers are in the log (KIP-98, 4.3)."""

from __future__ import annotations

import time

from ottla import Admin

_PATIENCE_S = 30.0


def all_written(servers: str) -> None:
    """Wait until no coordinator has still to write a transaction's markers: what is read from then on is final."""
    until = time.monotonic() + _PATIENCE_S
    with Admin({"bootstrap.servers": servers}) as admin:
        while left := admin.list_transactions(states=["PrepareCommit", "PrepareAbort"]):
            assert time.monotonic() < until, f"the markers of these were not written: {left}"
