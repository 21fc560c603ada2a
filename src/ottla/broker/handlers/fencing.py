"""How a fenced producer is told so: PRODUCER_FENCED, or what clients from before KIP-588 know instead."""

from typing import Any

from ottla.wire.errors import ErrorCode


def fenced_as(error: int, *, knows_fenced: bool) -> int:
    """`error` as a client understands it that does or does not know PRODUCER_FENCED."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED and not knows_fenced else error


def told(response: Any, *, knows_fenced: bool) -> Any:
    """A response with one `error_code`, as such a client understands it."""
    return response._replace(error_code=fenced_as(response.error_code, knows_fenced=knows_fenced))
