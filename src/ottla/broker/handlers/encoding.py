"""Encodes answers: at once, or a long one in slices while others are served."""

from typing import Any, Final

from ottla.broker.handlers.table import RequestContext
from ottla.broker.runtime.slices import Slices
from ottla.broker.server import Answer, Later
from ottla.wire.frames import encode_response, encode_response_steps

#: An answer with a longer array is encoded in slices: an element may be a topic with all its partitions or settings.
AT_ONCE: Final = 100
#: So is one that has more elements, in all its arrays: a millisecond.
ELEMENTS_AT_ONCE: Final = 1_000


def encoded(slices: Slices, context: RequestContext, message: tuple[Any, ...], *, is_long: bool) -> Answer:
    """The answer's bytes."""
    key, version, correlation_id = context[:3]
    if not is_long:
        return encode_response(key, version, correlation_id, message)
    slowly = _slowly(slices, key, version, correlation_id, message)
    return Later(slices.start(slowly, "encoding an answer"), _as_it_is)


async def _slowly(slices: Slices, key: int, version: int, correlation_id: int, message: tuple[Any, ...]) -> bytes:
    pieces: list[bytes] = []
    await slices.run(encode_response_steps(key, version, correlation_id, message, pieces))
    return b"".join(pieces)


def is_wide(message: tuple[Any, ...]) -> bool:
    """Whether one of the answer's own arrays is long."""
    for field in message:  # noqa: SIM110 - half the time of any()
        if type(field) is tuple and len(field) > AT_ONCE:
            return True
    return False


def _as_it_is(encoded: bytes) -> bytes:
    return encoded
