"""Who sends a request to the group coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


def sees_all(topic: str) -> bool:
    """Without an authorizer everybody sees every topic."""
    return True


class RequestContext(NamedTuple):
    """Who asks. `client_host` is written as Kafka does: a slash and the address ("/127.0.0.1")."""

    client_id: str
    client_host: str
    #: Whether who asks may describe a topic: a regular expression matches only such topics.
    sees: Callable[[str], bool] = sees_all
