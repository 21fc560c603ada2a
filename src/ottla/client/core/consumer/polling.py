"""Whether the user polls in time (`max.poll.interval.ms`).

The user's thread writes `last_s` when it calls poll. It needs no lock for that. Everything else belongs to the loop.
"""


class PollWatch:
    """When poll was called last, and whether somebody is in it now."""

    def __init__(self, interval_ms: int) -> None:
        self.interval_s = interval_ms / 1000
        self.last_s = 0.0
        #: The user waits in poll: nobody takes records, so the assignment may change.
        self.in_poll = False
        #: No poll came in time, and the user has not been told yet.
        self.exceeded = False
        self._late_s = 0.0

    def exceed(self, now_s: float, deadline_s: float) -> None:
        """No poll came until `deadline_s`. One that comes just now may have written `last_s` since that was looked at:
        how long it took is kept here."""
        self._late_s = now_s - deadline_s + self.interval_s
        self.exceeded = True

    def polled(self, now_s: float) -> int | None:
        """The user calls poll. If it comes too late, returns once how many ms it has taken; otherwise None."""
        took_s, self.last_s = now_s - self.last_s, now_s
        if self.exceeded:
            self.exceeded = False
            return int(max(took_s, self._late_s) * 1000)
        return None

    def returned(self, now_s: float) -> None:
        """Poll has found records, and they go to the user: what they bring is not processed before the next poll."""
        self.in_poll, self.last_s = False, now_s

    def deadline_s(self, now_s: float) -> float:
        """The latest time for the next poll. It moves on while the user waits in a poll."""
        return (now_s if self.in_poll else self.last_s) + self.interval_s
