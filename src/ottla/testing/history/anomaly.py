"""Something that must not happen."""

from dataclasses import dataclass

from ottla.testing.history.facts import Event


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding of a checker. `str()` is a line that says what is wrong."""

    #: What kind it is: a key of `ANOMALIES`.
    name: str
    #: A sentence with the records, offsets and clients.
    what: str
    #: Whom it is about: records (uid), transactions, clients, places (`topic-partition@offset`).
    about: tuple[str, ...] = ()
    #: The events that show how it came about, in order.
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"
