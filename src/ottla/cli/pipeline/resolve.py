"""`ottla pipeline resolve`: ends what a sink has left open, and settles what its query cannot, after asking."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import DEFAULT_BOOTSTRAP, Bootstrap, CommandError, Config, Json, agreed_to, print_json, say
from ottla.cli.pipeline.look import LEDGER, LedgerTopic, as_data, opened, the_view, told

if TYPE_CHECKING:
    from ottla.spark.protocol import Claim
    from ottla.spark.survey import Batch, SinkView


class As(Enum):
    """What a batch is to count as."""

    WRITTEN = "written"
    UNWRITTEN = "unwritten"


def resolve(
    sink: Annotated[str, typer.Argument(help="The sink's id.")],
    settle: Annotated[
        As | None, typer.Option("--as", help="What the last batch of a query is to count as; nobody else can know.")
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", help="With --as: which query. Without, the one that is half committed.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    ledger: LedgerTopic = LEDGER,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """End what a sink has left open, as its next start would, and with --as settle a batch that is in doubt.

    It says what will happen and asks. Decided slots are committed, others aborted; a query that is writing a batch now
    stops. --as written: rows that are missing stay missing, and the query goes on behind the batch. --as unwritten:
    when Spark runs the batch again, all of it is written again, and rows that are there already will be there twice.
    Stop the query first. Exit code 1 if something stays in doubt.

    Example: `ottla pipeline resolve words --dry-run`
    """
    from ottla.spark.errors import InDoubtError

    if yes and dry_run:
        raise CommandError("say --yes or --dry-run, not both")
    if as_json and not (yes or dry_run):
        raise CommandError("--json asks nobody: add --yes to do it, or --dry-run to see what would happen")
    with opened(bootstrap, config) as link:
        found = the_view(link, ledger, sink)
        if not found.batches and found.undecided:
            raise CommandError(
                f"{ledger} knows no decision of sink {sink}: perhaps its ledger.topic is another one (--ledger), and "
                "to abort what it has open could tear a batch. If there is no other ledger, start its query again, or "
                f"`ottla transactions abort` each: {', '.join(each.transactional_id for each in found.undecided)}"
            )
        batch = _chosen(found, settle, query)
        plan = what_will_happen(found, batch, settle)
        say("\n".join(plan or ["Nothing is to be done."]))
        done = bool(plan) and agreed_to(yes=yes, dry_run=dry_run)
        if done:
            _do(link, ledger, found, batch, settle)
        if as_json:
            print_json(as_data(found) | {"will": plan, "done": done})
    left = [each for each in found.half_committed if batch is None or each.key != batch.key]
    if left and not dry_run:
        raise InDoubtError(sink, left[0].key.query, left[0].key.batch, choices(left[0]))


def _chosen(found: SinkView, settle: As | None, query: str | None) -> Batch | None:
    """The batch that --as is about. Raises CommandError if it is not clear which, or there is nothing to settle."""
    if settle is None:
        if query is not None:
            raise CommandError("--query says nothing without --as written or --as unwritten")
        return None
    if query is None:
        if len(found.half_committed) != 1:
            many = ", ".join(each.key.query for each in found.half_committed) or "none"
            raise CommandError(f"say with --query which query: half committed is {many}")
        return found.half_committed[0]
    batch = found.batch(query)
    if batch is None:
        raise CommandError(
            f"sink {found.sink} has no decided batch of query {query}; `ottla pipeline describe` shows all"
        )
    if settle is As.WRITTEN and batch.state.value == "complete":
        raise CommandError(f"batch {batch.key.batch} of query {query} is complete: it counts as written already")
    return batch


def what_will_happen(found: SinkView, batch: Batch | None, settle: As | None) -> list[str]:
    """A sentence for each thing; none if there is nothing to do."""
    said = []
    if found.decided:
        said.append(f"{told(found.decided, 'decided transaction')} will be committed.")
    if found.undecided:
        said.append(
            f"{told(found.undecided, 'undecided transaction')} will be aborted; a query writes its batch again."
        )
    if batch is not None:
        said.append(_settled(batch, settle))
    if said:
        said.append(
            f"A query that is writing a batch through sink {found.sink} now will stop (SinkFencedError); one that "
            "waits for rows does not: it claims the sink again with its next batch."
        )
    return said


def _settled(batch: Batch, settle: As | None) -> str:
    name = f"batch {batch.key.batch} of query {batch.key.query}"
    lost = f" The rows of slots {', '.join(map(str, batch.lost))} stay missing." if batch.lost else ""
    if settle is As.WRITTEN:
        return f"{name} will count as written, and its query will go on behind it.{lost}"
    again = " Rows of it that are committed stay in the output, and would be there twice."
    return (
        f"{name} will count as unwritten: when Spark runs it again, the whole of it is written again. Spark runs no "
        f"batch again that its commit log has (commits/{batch.key.batch} in the checkpoint).{again}"
    )


def choices(batch: Batch) -> str:
    """What an operator can decide of a half committed batch."""
    return (
        f"slots {', '.join(map(str, batch.lost))} are lost, others are committed. Start its query again: it completes "
        "the batch if it gives the same rows. If it cannot, repair the output, then say --as written; or say "
        "--as unwritten, and the query writes all of it again when Spark runs it again"
    )


def _do(link: object, ledger: str, found: SinkView, batch: Batch | None, settle: As | None) -> None:
    from ottla.spark.ledger_io import LedgerKafka
    from ottla.spark.link import KafkaLink
    from ottla.spark.settlement import Settle, resolve_sink

    assert isinstance(link, KafkaLink)
    steps = resolve_sink(
        found.sink,
        None if batch is None else batch.key,
        None if settle is None else Settle(settle.value),
        driver=None if batch is None else batch.driver,
    )
    claim: Claim = link.run(LedgerKafka(link, found.sink, ledger, 1, 60_000).drive(steps))
    say(f"Committed {claim.recovered} decided transactions, aborted {claim.aborted} others.")
    if batch is not None and settle is not None:
        say(f"Batch {batch.key.batch} of query {batch.key.query} counts as {settle.value}.")
