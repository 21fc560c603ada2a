"""What happens to a group, drawn from a seed: one script for both ways of coordination. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ottla.base.errors import OttlaError
from ottla.base.words import counted

#: The first members start within this time.
_START_WITHIN_MS: Final = 1_000
#: Between two events: mostly enough to become stable again after the one before.
_GAP_MS: Final = (12_000, 30_000)
#: After the last event.
_CALM_MS: Final = 40_000
#: A paused process (garbage collection of those years) comes back after its session is over.
_PAUSE_MS: Final = (10_000, 14_000)
#: What a model in one process is good for: rebalances of old consumers cost members × members reads.
MAX_MEMBERS: Final = 200
MAX_PARTITIONS: Final = 1_000
MAX_EVENTS: Final = 200


class ScriptError(OttlaError):
    """No script can be drawn from these numbers. The message says why."""


class Kind(Enum):
    """What can happen."""

    START = "start"
    JOIN = "join"
    LEAVE = "leave"
    CRASH = "crash"
    PAUSE = "pause"
    RESUME = "resume"


class Event(NamedTuple):
    """At a time, to a member. Milliseconds since the beginning."""

    at_ms: float
    kind: Kind
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What the user asks for."""

    members: int = 5
    partitions: int = 20
    joins: int = 2
    leaves: int = 1
    crashes: int = 1
    pauses: int = 0

    def check(self) -> None:
        """Raises ScriptError."""
        for what, number, low, high in (
            ("members", self.members, 1, MAX_MEMBERS),
            ("partitions", self.partitions, 1, MAX_PARTITIONS),
            ("joins", self.joins, 0, MAX_EVENTS),
            ("leaves", self.leaves, 0, MAX_EVENTS),
            ("crashes", self.crashes, 0, MAX_EVENTS),
            ("pauses", self.pauses, 0, MAX_EVENTS),
        ):
            if not low <= number <= high:
                raise ScriptError(f"the number of {what} has to be between {low} and {high}, not {number}")
        whole = self.members + self.joins
        if whole > MAX_MEMBERS:
            raise ScriptError(
                f"{counted(self.members, 'member')} and {counted(self.joins, 'join')} are {whole} members; "
                f"at most {MAX_MEMBERS} are modelled"
            )
        if self.leaves + self.crashes >= whole:
            raise ScriptError(
                f"{counted(self.leaves, 'leave')} and {counted(self.crashes, 'crash', 'crashes')}, "
                f"and only {counted(whole, 'member')}: one has to stay"
            )


class Script(NamedTuple):
    """All that happens, in order, and when the world ends."""

    numbers: Numbers
    events: tuple[Event, ...]
    until_ms: float

    @classmethod
    def drawn(cls, numbers: Numbers, seed: int) -> Script:
        """The script of a seed. Raises ScriptError."""
        numbers.check()
        rng = random.Random(f"script {seed}")
        live = [f"member-{number:03}" for number in range(1, numbers.members + 1)]
        events = [Event(rng.uniform(0, _START_WITHIN_MS), Kind.START, name) for name in live]
        left = {
            Kind.JOIN: numbers.joins,
            Kind.LEAVE: numbers.leaves,
            Kind.CRASH: numbers.crashes,
            Kind.PAUSE: numbers.pauses,
        }
        at_ms = float(_START_WITHIN_MS)
        while any(left.values()):
            at_ms += rng.uniform(*_GAP_MS)
            kind = _next(left, len(live), rng)
            left[kind] -= 1
            if kind is Kind.JOIN:
                live.append(f"member-{numbers.members + numbers.joins - left[kind]:03}")
                events.append(Event(at_ms, kind, live[-1]))
                continue
            name = rng.choice(live)
            events.append(Event(at_ms, kind, name))
            if kind is Kind.PAUSE:
                at_ms += rng.uniform(*_PAUSE_MS)
                events.append(Event(at_ms, Kind.RESUME, name))
            else:
                live.remove(name)
        return cls(numbers, tuple(sorted(events)), at_ms + _CALM_MS)


def _next(left: dict[Kind, int], live: int, rng: random.Random) -> Kind:
    """One of the kinds that are left; the last member stays."""
    going = (Kind.LEAVE, Kind.CRASH)
    return rng.choice([kind for kind, number in left.items() if number and (kind not in going or live > 1)])
