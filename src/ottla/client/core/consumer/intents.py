"""What the consumer's core asks its shell to do, beside the intents of `client.core.intents`."""

from collections.abc import Callable
from typing import Any, NamedTuple


class CallUser(NamedTuple):
    """Let the user's poll call `function`. `ConsumerCore.called(ticket, error, now_s)` follows."""

    ticket: Any
    function: Callable[..., object]
    arguments: tuple[Any, ...]


class WakePoll(NamedTuple):
    """Wake poll, or another call that waits: something has changed that it should look at."""


class ReadClock(NamedTuple):
    """Read the time of day, for no time-out: `answered(ticket, milliseconds since the epoch)` follows."""

    ticket: Any


class FollowAllTopics(NamedTuple):
    """Keep metadata of every topic of the cluster, or no longer. A pattern needs it, to see new topics."""

    wanted: bool
