"""A Kafka for tests: `Broker` in a process of its own, `AsyncBroker` in the running event loop.

    from ottla.testing import Broker

    with Broker() as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

With pytest, ask for the fixture `ottla_broker`. `History` and `check_history` (`ottla.testing.history`) judge what any
client did and was told.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.broker import Broker, BrokerError
    from ottla.testing.faults import Fault, Faults
    from ottla.testing.final_state import note_final_state
    from ottla.testing.history import Anomaly, History, HistoryError, StreamedHistory, check_history
    from ottla.testing.in_loop import AsyncBroker

__all__ = [
    "Anomaly",
    "AsyncBroker",
    "Broker",
    "BrokerError",
    "Fault",
    "Faults",
    "History",
    "HistoryError",
    "StreamedHistory",
    "check_history",
    "note_final_state",
]

_HOMES = {
    "Broker": "broker",
    "BrokerError": "broker",
    "AsyncBroker": "in_loop",
    "Fault": "faults",
    "Faults": "faults",
    "Anomaly": "history",
    "History": "history",
    "HistoryError": "history",
    "StreamedHistory": "history",
    "check_history": "history",
    "note_final_state": "final_state",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that the pytest plugin costs nothing to tests that need no broker."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"ottla.testing.{_HOMES[name]}"), name)
