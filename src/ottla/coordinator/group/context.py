"""Who sends a request to the group coordinator."""

from __future__ import annotations

from typing import NamedTuple


class RequestContext(NamedTuple):
    """Who asks. `client_host` is written as Kafka does: a slash and the address ("/127.0.0.1")."""

    client_id: str
    client_host: str
