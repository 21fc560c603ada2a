"""What clients did and were told, and whether a Kafka may behave so.

    from ottla.testing.history import History, check_history

    history = History()
    writer, reader = history.producer("p"), history.consumer("c", group="g")
    ...                                  # note what the test does, and what it is told
    assert check_history(history) == []

A test of any client feeds a `History`: `producer` and `consumer` give notebooks, `log`, `positions` and `drained`
take the final state. `check_history` looks for the anomalies that Jepsen looks for in Kafka, and some more
(`ANOMALIES`).
"""

from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.builder import ConsumerNotes, History, ProducerNotes
from ottla.testing.history.check import ANOMALIES, check_history
from ottla.testing.history.facts import Event, Fact, LogRecord, Read
from ottla.testing.history.lines import HistoryError
from ottla.testing.history.streamed import StreamedHistory

__all__ = [
    "ANOMALIES",
    "Anomaly",
    "ConsumerNotes",
    "Event",
    "Fact",
    "History",
    "HistoryError",
    "LogRecord",
    "ProducerNotes",
    "Read",
    "StreamedHistory",
    "check_history",
]
