"""A large request: it is decoded in steps, and carried out in a turn of its own, while others are served."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from ottla.base.errors import CorruptDataError
from ottla.base.limits import MAX_FIELD_BYTES, MAX_REQUEST_ELEMENTS
from ottla.broker.answers import Answer, Frame, Later
from ottla.broker.handlers.table import RequestContext, of_client
from ottla.broker.ports.quotas import counted
from ottla.broker.runtime.slices import Slices
from ottla.wire.apis import API
from ottla.wire.codec import WireError
from ottla.wire.schema import decode_steps


async def in_its_turn(slices: Slices, context: RequestContext, carry_out: Callable[[], Any]) -> Any:
    """What a part of a request gives, in a turn of its own. If nobody waits any more when it has, what comes later is
    given up."""
    made: list[Any] = []

    def carrying_out() -> Iterator[None]:
        made.append(carry_out())
        yield

    try:
        await slices.run(counted(context, carrying_out()))
    except asyncio.CancelledError:
        for each in made:
            later = each.future if isinstance(each, Later) else each
            if isinstance(later, asyncio.Future):
                later.cancel()
        raise
    return made[0]


async def slowly(
    slices: Slices, context: RequestContext, frame: Frame, offset: int, carry_out: Callable[[Any], Answer]
) -> Answer | CorruptDataError:
    """What `carry_out` answers to the request, or why the connection has to be closed."""
    cls, version, decoded = API[context.api_key].request, context.api_version, list[Any]()
    bounds = {"max_elements": MAX_REQUEST_ELEMENTS, "max_field_bytes": MAX_FIELD_BYTES}

    def decoding() -> Iterator[None]:
        decoded.append((yield from decode_steps(cls, version, frame, offset, **bounds)))

    try:
        await slices.run(counted(context, decoding()))
        answer: Answer = await in_its_turn(slices, context, lambda: carry_out(decoded.pop()))
    except WireError as fault:
        return of_client(fault, context)
    except CorruptDataError as fault:
        return fault
    return answer
