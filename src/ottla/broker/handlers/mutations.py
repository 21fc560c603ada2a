"""Changes of topics are counted for the quota `controller_mutation_rate` (KIP-599)."""

from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.rules import RefusedError
from ottla.wire.errors import ErrorCode


def count_change(context: RequestContext, partitions: int, *, strict_from: int) -> None:
    """Count partitions that are made or deleted; RefusedError when that is too much.

    Requests older than `strict_from` are never refused: their clients do not know the error. They only have to wait.
    """
    charge = context.charge
    if charge is not None and not charge.changes(partitions, strict=context.api_version >= strict_from):
        raise RefusedError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
