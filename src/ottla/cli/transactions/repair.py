"""`ottla transactions find-hanging` and `who-holds`: which transactions somebody has to end, and who waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.base.clock import SystemClock
from ottla.base.duration import duration_ms
from ottla.base.words import counted
from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    admin_config,
    existing_partitions,
    print_rows,
    say,
    utc,
)

if TYPE_CHECKING:
    from ottla.client.admin.open_transactions import OpenTransaction, PartitionHold, WaitingGroup

_HANGING = ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "transactional_id", "since")
_HOLDS = (
    "topic",
    "partition",
    "last_stable_offset",
    "waiting_offsets",
    "producer_id",
    "producer_epoch",
    "transactional_id",
    "state",
    "since",
    "groups",
)
_DECIDED: Final = {"PrepareCommit": "committed", "PrepareAbort": "aborted"}
#: `transaction.timeout.ms` of a transaction in two-phase commit (KIP-939).
NEVER_MS: Final = 2**31 - 1
NO_TIMEOUT: Final = (
    "It is in two-phase commit, and no time-out ends it: perhaps another system, a database, has decided already that "
    "it is committed. Look there first."
)


def row_of(each: OpenTransaction) -> dict[str, object]:
    """An open transaction as a row. `since` is its beginning as a person reads it."""
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "start_offset": each.start_offset,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "coordinator_epoch": each.coordinator_epoch,
        "transactional_id": each.transactional_id,
        "state": state_of(each),
        "timeout_ms": each.timeout_ms,
        "last_timestamp_ms": each.last_timestamp_ms,
        "since_ms": each.since_ms,
        "since": None if each.since_ms is None else utc(each.since_ms),
    }


def state_of(each: OpenTransaction) -> str | None:
    """The state at its coordinator; "hanging" where none will end it."""
    return "hanging" if each.is_hanging else each.state


def what_to_do(each: OpenTransaction) -> str:
    """The command that ends it."""
    if each.is_hanging:
        return f"`ottla transactions abort --producer-id {each.producer_id} --producer-epoch {each.producer_epoch}`"
    return f"`ottla transactions abort {each.transactional_id}`"


def is_decided(state: str | None) -> bool:
    """Whether a transaction in this state only waits for its markers: no command changes what becomes of it."""
    return state in _DECIDED


def how_decided(state: str | None) -> str:
    """What becomes of a transaction whose state `is_decided`, and what to do if it stays so."""
    return (
        f"it is decided that it is {_DECIDED[state or '']}, and its coordinator is writing the markers. If it stays "
        "so, the log of the broker that coordinates it says why; Apache Kafka's may try again only after a restart"
    )


def age_limit_ms(option: str, text: str) -> int:
    """An option that is an ISO 8601 duration, in ms. Raises CommandError."""
    found = duration_ms(text)
    if found is None:
        raise CommandError(f"{option} {text!r} is not an ISO 8601 duration; write for example PT15M")
    return found


def find_hanging(
    topics: Annotated[
        list[str] | None, typer.Argument(help="Topics, or TOPIC:PARTITION. Without: all, Kafka's own too.")
    ] = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Only if its first record is so old, as PT15M.")
    ] = "PT0S",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Find transactions that hang: open in a partition, and no coordinator will ever end them.

    A transaction hangs when its coordinator does not know the producer or the partition any more, or never did. It is
    told only if it was open before the coordinators were asked, and is still open after. One that is decided, and whose
    markers are being written, does not hang; without --json it is told beside. Nothing is changed.

    With an authorizer you need DESCRIBE on all transactional ids: one that you may not describe looks as if it hung.

    Example: `ottla transactions find-hanging orders --older-than PT15M`
    """
    from ottla import Admin

    limit_ms = age_limit_ms("--older-than", older_than)
    with Admin(admin_config(bootstrap, config)) as admin:
        opened = admin.open_transactions(existing_partitions(admin, topics) if topics else None)
    now_ms = SystemClock().now_ms()
    found = [each for each in opened if each.is_hanging]
    found = [each for each in found if each.since_ms is None or now_ms - each.since_ms >= limit_ms]
    print_rows([row_of(each) for each in found], _HANGING, as_json=as_json, none="No transaction hangs.")
    if not as_json:
        for command in dict.fromkeys(what_to_do(each) for each in found):
            say(f"{command} aborts it; `commit` instead of `abort` makes its records visible.")
        for decided in dict.fromkeys((each.transactional_id, each.state) for each in opened if is_decided(each.state)):
            say(f"{', '.join(map(str, decided))}: {how_decided(decided[1])}.")


def who_holds(
    topics: Annotated[list[str], typer.Argument(help="Topics, or TOPIC:PARTITION.")],
    without_groups: Annotated[
        bool, typer.Option("--no-groups", help="Do not ask every group of the cluster whether it waits.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show which transaction holds back the `read_committed` readers of a partition, since when, and who waits.

    Such readers stop at the last stable offset: where the oldest open transaction begins. `waiting offsets` are records
    and markers between there and the end. `groups` have not come further, each with the member that reads there and the
    offset that it has committed.

    Example: `ottla transactions who-holds orders:0`
    """
    from ottla import Admin

    with Admin(admin_config(bootstrap, config)) as admin:
        holds = admin.who_holds(existing_partitions(admin, topics), groups=not without_groups)
    held = [each for each in holds.values() if each.waiting_offsets > 0]
    rows = [_hold_row(each, as_json=as_json) for each in held]
    print_rows(rows, _HOLDS, as_json=as_json, none=f"Nothing is held back in {', '.join(topics)}.")
    if not as_json:
        for each in held:
            say(sentence(each))


def _hold_row(hold: PartitionHold, *, as_json: bool) -> dict[str, object]:
    holder = hold.holder
    row: dict[str, object] = {
        "topic": hold.partition.topic,
        "partition": hold.partition.partition,
        "last_stable_offset": hold.last_stable_offset,
        "high_watermark": hold.high_watermark,
        "waiting_offsets": hold.waiting_offsets,
    }
    if not as_json:
        about = {} if holder is None else row_of(holder)
        return {**about, **row, "groups": [_waits(each) for each in hold.groups]}
    row["holder"] = None if holder is None else row_of(holder)
    row["behind"] = [row_of(each) for each in hold.transactions if each != holder]
    row["groups"] = [
        {"group": each.group_id, "committed": each.committed, "client": each.client_id} for each in hold.groups
    ]
    return row


def _waits(group: WaitingGroup) -> str:
    where = "nothing committed" if group.committed is None else f"at {group.committed}"
    return f"{group.group_id} ({where}{'' if group.client_id is None else f', {group.client_id}'})"


def sentence(hold: PartitionHold) -> str:
    """Behind what the readers of a partition wait, and what can be done about it."""
    waits = f"{hold.partition}: {counted(hold.waiting_offsets, 'offset')} behind"
    holder, others = hold.holder, len(hold.transactions) - 1
    if holder is None:
        return f"{waits} a transaction that has just begun or ended; look again."
    after = f" {counted(others, 'other')} of this partition would hold it after that." if others else ""
    if holder.is_hanging:
        return f"{waits} a transaction that hangs; {what_to_do(holder)} aborts it.{after}"
    if is_decided(holder.state):
        return f"{waits} {holder.transactional_id}, {holder.state}: {how_decided(holder.state)}.{after}"
    if holder.timeout_ms == NEVER_MS:
        return f"{waits} {holder.transactional_id}, {holder.state}. {NO_TIMEOUT} {what_to_do(holder)} aborts it.{after}"
    timeout = None if holder.since_ms is None or holder.timeout_ms is None else utc(holder.since_ms + holder.timeout_ms)
    by_itself = "" if timeout is None else f" Its coordinator aborts it at {timeout}."
    return f"{waits} {holder.transactional_id}, {holder.state}.{by_itself} {what_to_do(holder)} does it now.{after}"
