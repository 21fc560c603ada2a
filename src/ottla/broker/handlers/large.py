"""A large request: it is decoded in steps, and carried out in a turn of its own, while others are served."""

from collections.abc import Callable, Iterator
from typing import Any

from ottla.base.errors import CorruptDataError
from ottla.base.limits import MAX_REQUEST_ELEMENTS
from ottla.broker.answers import Answer, Frame
from ottla.broker.handlers.table import RequestContext, counted, of_client
from ottla.broker.runtime.slices import Slices
from ottla.wire.apis import API
from ottla.wire.codec import WireError
from ottla.wire.schema import decode_steps


async def slowly(
    slices: Slices, context: RequestContext, frame: Frame, offset: int, carry_out: Callable[[Any], Answer]
) -> Answer | CorruptDataError:
    """What `carry_out` answers to the request, or why the connection has to be closed."""
    cls, version, decoded = API[context.api_key].request, context.api_version, list[Any]()

    def decoding() -> Iterator[None]:
        decoded.append((yield from decode_steps(cls, version, frame, offset, max_elements=MAX_REQUEST_ELEMENTS)))

    def carrying_out() -> Iterator[Answer]:
        yield carry_out(decoded.pop())

    try:
        await slices.run(counted(context, decoding()))
        answers: list[Answer] = await slices.collect(counted(context, carrying_out()))
    except WireError as fault:
        return of_client(fault, context)
    except CorruptDataError as fault:
        return fault
    return answers[0]
