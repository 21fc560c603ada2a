"""Encodes answers: at once, or a long one in slices while others are served, as far as there is memory for it."""

from functools import cache
from typing import Any, Final

from ottla.broker.answers import Answer, Later
from ottla.broker.handlers.parts import Names
from ottla.broker.handlers.table import RequestContext
from ottla.broker.outbox import Piece
from ottla.broker.runtime.encoding import Answers, AnswerTooLargeError, MadeAnswer
from ottla.broker.runtime.slices import Slices
from ottla.wire.apis import API
from ottla.wire.frames import encode_response
from ottla.wire.schema import carries_bytes, has_more_bytes, has_more_elements

#: An answer with a longer array is encoded in slices: an element may be a topic with all its partitions or settings.
AT_ONCE: Final = 100
#: So is one that waited, with more elements in all its arrays: a millisecond.
_ELEMENTS_AT_ONCE: Final = 1_000
#: And so is one with more bytes in its texts and byte fields: to copy them takes as long as some hundred elements.
_BYTES_AT_ONCE: Final = 262_144


def encoded(
    answers: Answers, slices: Slices, context: RequestContext, message: tuple[Any, ...], *, is_long: bool
) -> Answer:
    """The answer's bytes."""
    if not is_long:
        return encode_response(context.api_key, context.api_version, context.correlation_id, message)
    made = answers.begin(context.api_key, context.api_version, context.client_id)
    slowly = _slowly(slices, made, context.correlation_id, message)
    return Later(slices.start(slowly, "encoding an answer"), as_it_is)


async def _slowly(
    slices: Slices, made: MadeAnswer, correlation_id: int, message: tuple[Any, ...]
) -> list[Piece] | AnswerTooLargeError:
    frame: list[Piece] = []
    try:
        await slices.run(made.whole(correlation_id, message, frame))
    except AnswerTooLargeError as fault:
        return fault
    finally:
        made.end()
    return frame


def is_wide(message: tuple[Any, ...], names: Names | None) -> bool:
    """Whether it has a long array; or tells of several names, each of which may be a group with all its members."""
    if names is not None and len(getattr(message, names.told)) > 1:
        return True
    for field in message:  # noqa: SIM110 - half the time of any()
        if type(field) is tuple and len(field) > AT_ONCE:
            return True
    return False


def is_deep(message: tuple[Any, ...]) -> bool:
    """Whether it has many elements, nested ones too."""
    return has_more_elements(message, _ELEMENTS_AT_ONCE)


def is_heavy(api_key: int, message: tuple[Any, ...], *, may_be_deep: bool) -> bool:
    """Whether it has many bytes, such as what the members of a group say of themselves."""
    return (may_be_deep or _carries_bytes(api_key)) and has_more_bytes(message, _BYTES_AT_ONCE)


@cache
def _carries_bytes(api_key: int) -> bool:
    """Whether its answers have byte fields, which may be of any length. Asked once: at the start it would import all
    messages, a sixth of the time until a broker is ready."""
    return carries_bytes(API[api_key].response)


def as_it_is(answer: Answer) -> Answer:
    """What a `Later` has is its answer already."""
    return answer
