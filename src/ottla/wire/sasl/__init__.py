"""What client and broker say to each other inside SaslAuthenticate, one file per mechanism.

A mechanism is an automaton without I/O. It draws no random number: nonces are arguments. `start` gives the client's
first message. `answer` gives its next one for each answer of the broker, and None when the client is satisfied. An
exchange serves once.

The clients' halves are `SaslClient`s, the broker's are `SaslServer`s. What both compute (SCRAM's keys, for example)
stands in functions of its own. `jaas` reads the text in which Java has users and passwords.
"""

from typing import Protocol

from ottla.base.errors import OttlaError

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


def sends_headers(handshake_version: int) -> bool:
    """Whether messages come in SaslAuthenticate after a SaslHandshake of this version, or else bare (KIP-152)."""
    return handshake_version >= 1


class SaslError(OttlaError):
    """The other side's message breaks the mechanism's rules, or does not prove what it has to. Never holds a secret."""


class SaslRefusedError(SaslError):
    """A broker's reason to refuse that the client may be told. What other errors say is for the broker's log alone."""


class SaslServer(Protocol):
    """The broker's half of one exchange."""

    @property
    def user(self) -> str | None:
        """Who has proven that he is it; None as long as nobody has."""

    def answer(self, message: bytes) -> bytes:
        """What follows the client's `message`. Raises SaslError if he does not prove it."""


class SaslClient(Protocol):
    """The client's half of one exchange."""

    def start(self) -> bytes:
        """The first message."""

    def answer(self, challenge: bytes) -> bytes | None:
        """The message that follows the broker's `challenge`; None when the exchange is over. Raises SaslError."""
