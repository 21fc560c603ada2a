"""`ottla transactions abort` and `commit`: end a transaction by hand, after saying what will happen, and asking."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ottla.base.words import counted
from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    admin_config,
    agreed_to,
    existing_partitions,
    print_rows,
    say,
)
from ottla.cli.transactions.look import DESCRIBED, described_row, found_by_id, require_id
from ottla.cli.transactions.repair import (
    NEVER_MS,
    NO_TIMEOUT,
    how_decided,
    is_decided,
    row_of,
    state_of,
    what_to_do,
)

if TYPE_CHECKING:
    from ottla import Admin, TopicPartition
    from ottla.client.admin.open_transactions import OpenTransaction
    from ottla.client.admin.types import TransactionDescription

_COLUMNS = ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "transactional_id", "state", "since")
_ABORTS = "no read_committed reader will ever get these records"
_COMMITS = (
    "every read_committed reader will get these records, also if the same transaction was aborted in other partitions"
)

_ProducerId = Annotated[
    str | None,
    typer.Option("--producer-id", metavar="NUMBER", help="Whose transaction hangs, as `find-hanging` shows it."),
]
_ProducerEpoch = Annotated[str | None, typer.Option("--producer-epoch", metavar="NUMBER", help="Its epoch.")]
_Partition = Annotated[
    str | None, typer.Option("--partition", metavar="TOPIC:PARTITION", help="Only there; without, wherever it hangs.")
]
_StartOffset = Annotated[
    int | None, typer.Option("--start-offset", help="With --partition, instead of the producer: where it begins.")
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")]


class _How(NamedTuple):
    """What the options say about asking and telling."""

    commit: bool
    yes: bool
    dry_run: bool
    as_json: bool

    @property
    def past(self) -> str:
        return "committed" if self.commit else "aborted"


class _Which(NamedTuple):
    """Which hanging transaction: by producer, or by where it begins."""

    producer_id: int | None
    producer_epoch: int | None
    partition: str | None
    start_offset: int | None


def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(help="The transactional id whose transaction to end; its producer is fenced.")
    ] = None,
    producer_id: _ProducerId = None,
    producer_epoch: _ProducerEpoch = None,
    partition: _Partition = None,
    start_offset: _StartOffset = None,
    yes: _Yes = False,
    dry_run: _DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Abort an open transaction: by its id, or a hanging one by producer id and epoch, or by partition and offset.

    It says what will happen and asks. By its id the coordinator aborts it everywhere. A hanging one gets an abort
    marker in each partition, after a look whether it really hangs: one that has a coordinator is refused.

    Example: `ottla transactions abort billing-tx`, `ottla transactions abort --producer-id 7 --producer-epoch 0 --yes`
    """
    from ottla import Admin

    which = _Which(*_producer("abort", producer_id, producer_epoch), partition, start_offset)
    how = _checked(_How(False, yes, dry_run, as_json))
    if (transactional_id is not None) == any(each is not None for each in which):
        raise CommandError(
            "give either a transactional id, or --producer-id with --producer-epoch, or --partition TOPIC:PARTITION "
            "with --start-offset N"
        )
    if transactional_id is not None:
        require_id(transactional_id)
    with Admin(admin_config(bootstrap, config)) as admin:
        if transactional_id is not None:
            _abort_by_id(admin, transactional_id, how)
        else:
            _end_hanging(admin, which, how)


def commit(
    transactional_id: Annotated[str | None, typer.Argument(hidden=True)] = None,
    producer_id: _ProducerId = None,
    producer_epoch: _ProducerEpoch = None,
    partition: _Partition = None,
    start_offset: _StartOffset = None,
    yes: _Yes = False,
    dry_run: _DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Commit a hanging transaction, so that readers get its records: by producer id and epoch, or by partition.

    Only you can know that its records are right: perhaps its coordinator has committed it in other partitions and was
    then lost. It says what will happen and asks. A transaction that has a coordinator is refused: its producer decides.

    Example: `ottla transactions commit --producer-id 7 --producer-epoch 0 --partition orders:0 --dry-run`
    """
    from ottla import Admin

    if transactional_id is not None:
        raise CommandError(_not_by_id(transactional_id))
    which = _Which(*_producer("commit", producer_id, producer_epoch), partition, start_offset)
    how = _checked(_How(True, yes, dry_run, as_json))
    with Admin(admin_config(bootstrap, config)) as admin:
        _end_hanging(admin, which, how)


def _not_by_id(given: str) -> str:
    from ottla import TransactionHandle

    example = "ottla transactions commit --producer-id 7 --producer-epoch 0"
    with suppress(ValueError):
        given = TransactionHandle.parse(given).transactional_id
    if _is_number(given):
        return (
            f"a producer id is given with its epoch: {example.replace('7', given)}; "
            "`ottla transactions find-hanging` shows both"
        )
    return (
        f"a transaction that has a coordinator is committed by its producer, not by its transactional id "
        f"({given}). One that hangs is committed by its producer id and epoch: {example}; `ottla transactions "
        f"find-hanging` shows both. To abort that of {given}: ottla transactions abort {given}"
    )


def _producer(command: str, producer_id: str | None, producer_epoch: str | None) -> tuple[int | None, int | None]:
    """Both as numbers. Raises CommandError for what is none: a transactional id, perhaps."""
    for option, given in (("--producer-id", producer_id), ("--producer-epoch", producer_epoch)):
        if given is not None and not _is_number(given):
            by_id = f". By a transactional id: ottla transactions abort {given}" if option == "--producer-id" else ""
            raise CommandError(
                f"{option} is a number, not {given!r}: write for example `ottla transactions {command} --producer-id 7 "
                f"--producer-epoch 0`; `ottla transactions find-hanging` shows both{by_id}"
            )
    return (
        None if producer_id is None else int(producer_id),
        None if producer_epoch is None else int(producer_epoch),
    )


def _is_number(given: str) -> bool:
    return given.isascii() and given.isdigit()


def _checked(how: _How) -> _How:
    if how.yes and how.dry_run:
        raise CommandError("say --yes or --dry-run, not both")
    if how.as_json and not (how.yes or how.dry_run):
        raise CommandError("--json asks nobody: add --yes to do it, or --dry-run to see what would happen")
    return how


# -- by its id


def _abort_by_id(admin: Admin, transactional_id: str, how: _How) -> None:
    # Ask first: fencing would create an id that does not exist, and stop a producer that has nothing open.
    found = found_by_id(admin, [transactional_id])[transactional_id]
    if is_decided(found.state):
        raise CommandError(f"{transactional_id} is {found.state}: {how_decided(found.state)}; nothing was changed")
    if found.state != "Ongoing":
        raise CommandError(f"{transactional_id} has no open transaction, it is {found.state}; nothing was aborted")
    if not how.as_json:
        print_rows([described_row(found)], DESCRIBED, as_json=False, none="")
        say(f"Its coordinator will abort it: {_ABORTS}. Its producer is fenced: it can write nothing more.")
        if found.timeout_ms == NEVER_MS:
            say(NO_TIMEOUT)
    agreed = agreed_to(yes=how.yes, dry_run=how.dry_run)
    if agreed:
        _require_still_open(found, found_by_id(admin, [transactional_id])[transactional_id])
        admin.fence_producers([transactional_id])
        say(f"{transactional_id}: aborted, and its producer fenced.")
    if how.as_json:
        print_rows([{**described_row(found), "ended": agreed, "error": None}], (), as_json=True, none="")


def _require_still_open(shown: TransactionDescription, now: TransactionDescription) -> None:
    """Raise CommandError if the transaction that was shown has ended while a person was asked."""
    if (now.state, *_identity(now)) != (shown.state, *_identity(shown)):
        told = ", and another one is open" if now.state == shown.state else f": it is {now.state}"
        raise CommandError(
            f"the transaction of {shown.transactional_id} that was shown has ended meanwhile{told}; nothing was changed"
        )


def _identity(each: TransactionDescription) -> tuple[int, int, int]:
    return each.producer_id, each.producer_epoch, each.start_ms


# -- by what partitions know


def _end_hanging(admin: Admin, which: _Which, how: _How) -> None:
    targets = _targets(admin, which)
    if not how.as_json:
        print_rows([row_of(each) for each in targets], _COLUMNS, as_json=False, none="")
        say(_what_will_happen(targets, how))
    rows, failures = [], []
    agreed = agreed_to(yes=how.yes, dry_run=how.dry_run)
    for each in targets:
        error = _end(admin, each, how) if agreed else None
        rows.append({**row_of(each), "ended": agreed and error is None, "error": error})
        failures += [] if error is None else [error]
    if how.as_json:
        print_rows(rows, (), as_json=True, none="")
    if failures:
        raise CommandError("; ".join(failures))


def _end(admin: Admin, each: OpenTransaction, how: _How) -> str | None:
    """Write the marker; what has gone wrong, or None. So the other partitions are ended all the same."""
    from ottla.client.errors import ClientError

    try:
        admin.end_hanging_transaction(each.partition, each.producer_id, each.producer_epoch, commit=how.commit)
    except ClientError as fault:
        return f"{each.partition}: {fault}"
    say(f"{each.partition}: the transaction at offset {each.start_offset} is {how.past}.")
    return None


def _targets(admin: Admin, which: _Which) -> list[OpenTransaction]:
    """The hanging transactions that are meant. Raises CommandError if there are none, and says what there is."""
    by_producer = which.producer_id is not None or which.producer_epoch is not None
    if by_producer == (which.start_offset is not None) or (which.partition is None and not by_producer):
        raise CommandError("say which: --producer-id with --producer-epoch, or --partition with --start-offset")
    if by_producer and (which.producer_id is None or which.producer_epoch is None):
        raise CommandError("--producer-id and --producer-epoch go together; `find-hanging` shows both")
    partitions = None if which.partition is None else _one_partition(admin, which.partition)
    opened = admin.open_transactions(partitions)
    where = "anywhere" if which.partition is None else f"in {which.partition}"
    if by_producer:
        found = [each for each in opened if each.producer_id == which.producer_id]
        missing = f"producer {which.producer_id} has no open transaction {where}"
    else:
        found = [each for each in opened if each.start_offset == which.start_offset]
        missing = f"no open transaction begins at offset {which.start_offset} {where}"
    if not found:
        raise CommandError(f"{missing}; `ottla transactions find-hanging` shows what hangs")
    hanging = [each for each in found if each.is_hanging]
    if not hanging:
        raise CommandError(_not_hanging(found[0]))
    if by_producer:
        epochs = sorted({each.producer_epoch for each in hanging})
        hanging = [each for each in hanging if each.producer_epoch == which.producer_epoch]
        if not hanging:
            raise CommandError(
                f"producer {which.producer_id} hangs {where} with epoch {', '.join(map(str, epochs))}, "
                f"not {which.producer_epoch}"
            )
    return hanging


def _not_hanging(each: OpenTransaction) -> str:
    told = (
        f"the transaction of producer {each.producer_id} in {each.partition} is not hanging: it is "
        f"{each.transactional_id}, {state_of(each)}"
    )
    if is_decided(each.state):
        return f"{told}: {how_decided(each.state)}"
    return f"{told}, and its coordinator ends it; {what_to_do(each)} aborts it"


def _one_partition(admin: Admin, name: str) -> list[TopicPartition]:
    if ":" not in name:
        raise CommandError(f"{name!r} is not TOPIC:PARTITION; write for example orders:0")
    return existing_partitions(admin, [name])


def _what_will_happen(targets: Sequence[OpenTransaction], how: _How) -> str:
    many = len(targets) > 1
    marker = (
        f"{'A COMMIT' if how.commit else 'An ABORT'} marker will be written into {'each partition' if many else 'it'}"
    )
    said = [f"{marker}: {_COMMITS if how.commit else _ABORTS}. This cannot be undone."]
    owner = next((each for each in targets if each.transactional_id is not None), None)
    if owner is not None:
        said.append(
            f"Producer {owner.producer_id} belongs to {owner.transactional_id} ({owner.state}): if it lives, stop it "
            "first, because what it writes there meanwhile ends in the same way."
        )
    if many:
        said.append(f"These are {counted(len(targets), 'partition')}.")
    return " ".join(said)
