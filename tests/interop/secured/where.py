"""What a client of the security matrix is told: where the broker is, and who the client says that it is."""

from __future__ import annotations

from typing import NamedTuple

#: How long a client waits for a record, in seconds.
WAIT_S = 30.0
USER = "alice"


class Where(NamedTuple):
    """A listener, and the files and secrets of one client."""

    address: str
    protocol: str
    #: PEM files: the authority that the client trusts, and the client's own key and certificate.
    authority: str | None = None
    certificate: str | None = None
    mechanism: str | None = None
    #: The user's password, or its token.
    secret: str | None = None
    #: The file that the token is in: Java's client reads it from there.
    token_file: str | None = None
    #: How long a client tries that knows no end of it.
    patience_s: float = WAIT_S


class RefusedError(Exception):
    """The client was not let in, or does not trust the broker. What it says of that."""
