"""`ottla transactions list` and `describe`: what coordinators know."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.base.config import sendable
from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    admin_config,
    print_rows,
    utc,
)

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.client.admin.types import TransactionDescription, TransactionListing

#: What a table shows of `described_row`.
DESCRIBED = ("transactional_id", "state", "producer_id", "producer_epoch", "started", "partitions")
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")


def list_transactions(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    pattern: Annotated[str | None, typer.Option("--pattern", help="Regular expression for the id.")] = None,
    state: Annotated[list[str] | None, typer.Option("--state", help="Such as Ongoing; may be repeated.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List transactional ids with their states.

    Example: `ottla transactions list --state Ongoing`
    """
    from ottla import Admin

    states = tuple(_state(name) for name in state or ())
    with Admin(admin_config(bootstrap, config)) as admin:
        found = _listed(admin, pattern, states)
    rows: list[dict[str, object]] = [
        {"transactional_id": each.transactional_id, "producer_id": each.producer_id, "state": each.state}
        for each in found
    ]
    columns = ("transactional_id", "producer_id", "state")
    print_rows(rows, columns, as_json=as_json, none="There are no transactions.")


def _listed(admin: Admin, pattern: str | None, states: Iterable[str]) -> list[TransactionListing]:
    from ottla.client.errors import KafkaError
    from ottla.wire.errors import ErrorCode

    wrong = None if pattern is None else sendable(pattern)
    if wrong is not None:
        raise CommandError(f"--pattern {wrong}")
    try:
        return admin.list_transactions(pattern, states)
    except KafkaError as fault:
        if fault.code is not ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise
        raise CommandError(f"--pattern {reprlib.repr(pattern)} is no expression of RE2, or is too large") from fault


def _state(name: str) -> str:
    known = {each.lower(): each for each in _STATES}
    if name.lower() not in known:
        raise CommandError(f"--state {name}: the states are {', '.join(_STATES)}")
    return known[name.lower()]


def describe(
    ids: Annotated[list[str], typer.Argument(help="Transactional ids.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show what the coordinator knows of transactions: state, producer, since when, which partitions.

    Example: `ottla transactions describe billing-tx`
    """
    from ottla import Admin

    for each in ids:
        require_id(each)
    with Admin(admin_config(bootstrap, config)) as admin:
        found = found_by_id(admin, ids)
    none = "There are no such transactions."
    print_rows([described_row(each) for each in found.values()], DESCRIBED, as_json=as_json, none=none)


def require_id(transactional_id: str) -> None:
    """Raise CommandError for an empty id, mostly a variable of a shell that has no value; or if nobody can have it."""
    if not transactional_id:
        raise CommandError("a transactional id is never empty; `ottla transactions list` shows which there are")
    wrong = sendable(transactional_id)
    if wrong is not None:
        raise CommandError(f"a transactional id {wrong}; `ottla transactions list` shows which there are")


def found_by_id(admin: Admin, ids: list[str]) -> dict[str, TransactionDescription]:
    """What coordinators know of these. Raises CommandError for an id that is not known: a producer id, perhaps."""
    from ottla.client.errors import KafkaError
    from ottla.wire.errors import ErrorCode

    try:
        return admin.describe_transactions(ids)
    except KafkaError as fault:
        if fault.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        numbers = [each for each in ids if each.isascii() and each.isdigit()]
        hint = (
            f". If {numbers[0]} is a producer id: ottla transactions abort --producer-id {numbers[0]} "
            "--producer-epoch 0, with its epoch; `ottla transactions find-hanging` shows both"
            if numbers
            else ""
        )
        raise CommandError(
            f"{fault}; `ottla transactions list` shows which transactional ids there are{hint}"
        ) from None


def described_row(each: TransactionDescription) -> dict[str, object]:
    """A transactional id as a row."""
    return {
        "transactional_id": each.transactional_id,
        "state": each.state,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "timeout_ms": each.timeout_ms,
        "start_ms": each.start_ms,
        "started": utc(each.start_ms),
        "partitions": [str(tp) for tp in sorted(each.partitions)],
    }
