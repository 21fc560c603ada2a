"""What is wrong with bytes that should be a message, or with a message that should be bytes."""

from ottla.base.errors import CorruptDataError


class WireError(CorruptDataError):
    """Bytes that are not the message they should be, or a message the wire cannot hold."""


class TooManyElementsError(WireError):
    """A message that has more elements than its reader allows."""


class UnwritableTextError(WireError):
    """A text with half of a pair of surrogates: UTF-8 cannot write it."""
