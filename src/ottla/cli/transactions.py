"""`ottla transactions`: list, describe and abort transactions."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    admin_config,
    print_rows,
    say,
    topic_partition,
    utc,
)

_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")

app = typer.Typer(
    no_args_is_help=True,
    help="List, describe and abort transactions.\n\nExample: `ottla transactions list --state Ongoing`",
)


@app.command("list")
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
        found = admin.list_transactions(pattern, states)
    rows: list[dict[str, object]] = [
        {"transactional_id": each.transactional_id, "producer_id": each.producer_id, "state": each.state}
        for each in found
    ]
    columns = ("transactional_id", "producer_id", "state")
    print_rows(rows, columns, as_json=as_json, none="There are no transactions.")


def _state(name: str) -> str:
    known = {each.lower(): each for each in _STATES}
    if name.lower() not in known:
        raise CommandError(f"--state {name}: the states are {', '.join(_STATES)}")
    return known[name.lower()]


@app.command("describe")
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

    with Admin(admin_config(bootstrap, config)) as admin:
        found = admin.describe_transactions(ids)
    rows: list[dict[str, object]] = [
        {
            "transactional_id": each.transactional_id,
            "state": each.state,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "timeout_ms": each.timeout_ms,
            "start_ms": each.start_ms,
            "started": utc(each.start_ms),
            "partitions": [str(tp) for tp in sorted(each.partitions)],
        }
        for each in found.values()
    ]
    columns = ("transactional_id", "state", "producer_id", "producer_epoch", "started", "partitions")
    print_rows(rows, columns, as_json=as_json, none="There are no such transactions.")


@app.command("abort")
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(help="The transactional id whose transaction to end.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    partition: Annotated[
        str | None, typer.Option("--partition", help="TOPIC:PARTITION with a transaction no coordinator knows.")
    ] = None,
    start_offset: Annotated[int | None, typer.Option("--start-offset", help="Where that transaction begins.")] = None,
    config: Config = None,
) -> None:
    """Abort an open transaction: by its id (its producer is fenced), or a hanging one by partition and start offset.

    Example: `ottla transactions abort billing-tx`
    """
    from ottla import Admin, TopicPartition

    if (transactional_id is None) == (partition is None) or (partition is None) != (start_offset is None):
        raise CommandError("give either a transactional id, or --partition TOPIC:PARTITION with --start-offset N")
    with Admin(admin_config(bootstrap, config)) as admin:
        if transactional_id is not None:
            # Ask first: fencing would create an id that does not exist, and stop a producer that has nothing open.
            state = admin.describe_transactions([transactional_id])[transactional_id].state
            if state != "Ongoing":
                raise CommandError(f"{transactional_id} has no open transaction, it is {state}; nothing was aborted")
            admin.fence_producers([transactional_id])
            say(f"{transactional_id}: aborted, and its producer fenced.")
            return
        tp = TopicPartition(*topic_partition(partition or ""))
        hanging = [each for each in admin.describe_producers([tp])[tp] if each.transaction_start_offset == start_offset]
        if not hanging:
            raise CommandError(f"no open transaction begins at offset {start_offset} of {tp}")
        admin.abort_transaction(tp, hanging[0].producer_id, hanging[0].producer_epoch, hanging[0].coordinator_epoch)
    say(f"{tp}: the transaction at offset {start_offset} is aborted.")
