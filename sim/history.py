"""What happened in a world, in order: the table that a person reads, and what the checkers judge."""

from typing import Any, NamedTuple

from sim.loop import START_S, SimLoop


class Event(NamedTuple):
    """Who did what, when. `data` is for checkers, `text` for people."""

    at_s: float
    who: str
    what: str
    text: str
    data: Any = None


class History:
    """The events of one world."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.events: list[Event] = []

    def add(self, who: str, what: str, text: str = "", data: Any = None) -> None:
        """Note an event now."""
        self.events.append(Event(self._loop.time() - START_S, who, what, text, data))


def table(events: list[Event], *, around: list[str] | None = None) -> str:
    """The events as lines. With `around`, of the users' own only those that mention one of these texts."""
    lines = [f"{'time':>9}  {'who':<14} {'what':<18} details"]
    for event in events:
        mentioned = around is None or event.who in ("cluster", "nemesis")
        if mentioned or any(text in event.text for text in around or ()):
            lines.append(f"{event.at_s:9.3f}  {event.who:<14} {event.what:<18} {event.text}")
    return "\n".join(lines)
