"""Which error a fenced producer gets: PRODUCER_FENCED, or the older error that clients before KIP-588 know."""

from typing import Any

from ottla.wire.errors import ErrorCode


def fenced_as(error: int, *, knows_fenced: bool) -> int:
    """`error` for a client that knows PRODUCER_FENCED, or for one that does not."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED and not knows_fenced else error


def told(response: Any, *, knows_fenced: bool) -> Any:
    """A response with one `error_code`, for a client that knows PRODUCER_FENCED or not."""
    return response._replace(error_code=fenced_as(response.error_code, knows_fenced=knows_fenced))
