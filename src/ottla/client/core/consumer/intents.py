"""What the consumer's core wants its shell to do, beside the intents of `client.core.intents`."""

from collections.abc import Callable
from typing import Any, NamedTuple


class CallUser(NamedTuple):
    """Have the user's poll call `function`; then `ConsumerCore.called(ticket, error, now_s)`."""

    ticket: Any
    function: Callable[..., object]
    arguments: tuple[Any, ...]


class WakePoll(NamedTuple):
    """Something has changed that poll, or a call that waits like it, should look at."""


class ReadClock(NamedTuple):
    """`answered(ticket, milliseconds since the epoch)`: the time of day, which time-outs never run on."""

    ticket: Any


class FollowAllTopics(NamedTuple):
    """Whether to keep metadata of every topic of the cluster: a pattern has to see new ones."""

    wanted: bool
