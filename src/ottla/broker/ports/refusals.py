"""Lines about requests that are answered, but whose contents no good client sends."""

import logging
from typing import Protocol

from ottla.base.clock import Clock
from ottla.broker.quiet import Quiet

_log = logging.getLogger(__name__)


class Refusals:
    """Names who sent it; at most one line in a while for each address."""

    def __init__(self, clock: Clock) -> None:
        self._quiet = Quiet(clock)

    def tell(self, client_host: str, client_id: str, what: str) -> None:
        """`what` was refused."""
        more = self._quiet.turn(client_host)
        if more is not None:
            _log.warning("refusing a request of %s (client id %r): %s%s", client_host, client_id, what, more)


class HasRefusals(Protocol):
    """Needs to say what was refused."""

    @property
    def refusals(self) -> Refusals: ...
