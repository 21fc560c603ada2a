"""`ottla pipeline list` and `describe`: what the ledger and the coordinators say of the exactly-once sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.base.words import counted
from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    CommandError,
    Config,
    Json,
    admin_config,
    print_json,
    print_rows,
    utc,
)

if TYPE_CHECKING:
    from ottla.spark.link import KafkaLink
    from ottla.spark.survey import Batch, SinkView, Transaction

_SINKS: Final = ("sink", "state", "queries", "last_query", "last_batch", "open", "open_since")
_QUERIES: Final = ("query", "batch", "state", "topic", "slots", "rows", "lost")
_SLOTS: Final = ("slot", "state", "rows", "transactional_id")
_OPEN: Final = ("transactional_id", "decided", "state", "producer_id", "producer_epoch", "since")
#: The driver claims a sink with its transactions' time-out; ours are over at once.
_TIMEOUT_MS: Final = 60_000

LedgerTopic = Annotated[str, typer.Option("--ledger", metavar="TOPIC", help="The sinks' option ledger.topic.")]
LEDGER: Final = "__ottla_ledger"


def list_sinks(
    ledger: LedgerTopic = LEDGER, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, config: Config = None, as_json: Json = False
) -> None:
    """List the sinks of a ledger: whether one is idle, has something open, or a batch that is half committed.

    Nothing is changed. A batch that is being written looks like one whose driver has died: `open since` tells more.

    Example: `ottla pipeline list`
    """
    with opened(bootstrap, config) as link:
        found = views(link, ledger)
    rows = [_sink_row(each) for _, each in sorted(found.items())]
    print_rows(rows, _SINKS, as_json=as_json, none=f"No sink has written to {ledger}.")


def describe(
    sink: Annotated[str, typer.Argument(help="The sink's id.")],
    ledger: LedgerTopic = LEDGER,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the last batch of each query of a sink, slot by slot where it is not complete, and what is open.

    Nothing is changed.

    Example: `ottla pipeline describe words`
    """
    with opened(bootstrap, config) as link:
        found = the_view(link, ledger, sink)
    if as_json:
        print_json(as_data(found))
        return
    print_rows([_query_row(each) for each in found.batches], _QUERIES, as_json=False, none="No batch is decided yet.")
    for batch in found.batches:
        if batch.state.value != "complete":
            print(f"Batch {batch.key.batch} of query {batch.key.query} is {batch.state.value}:")
            rows = [{**each._asdict(), "state": each.state.value} for each in batch.slots]
            print_rows(rows, _SLOTS, as_json=False, none="It has no slots.")
    print_rows(_open_rows(found), _OPEN, as_json=False, none="No transaction is open.")
    if found.decided or found.undecided or found.half_committed:
        print(f"`ottla pipeline resolve {sink} --dry-run` says what can be done.")


@contextmanager
def opened(bootstrap: str, config: list[str] | None) -> Iterator[KafkaLink]:
    """A link to the cluster, closed at the end."""
    from ottla.spark.link import KafkaLink

    link = KafkaLink(admin_config(bootstrap, config))
    try:
        yield link
    finally:
        link.shut()


def views(link: KafkaLink, topic: str) -> dict[str, SinkView]:
    """All sinks of a ledger. CommandError if there is no such topic."""
    from ottla.client.errors import UnknownTopicOrPartitionError
    from ottla.spark.ids import PREFIX
    from ottla.spark.ledger import Ledger
    from ottla.spark.ledger_io import LedgerKafka
    from ottla.spark.survey import Transaction, sink_of, view

    try:
        ledgers = link.run(LedgerKafka(link, "", topic, 1, _TIMEOUT_MS).read_all())
    except UnknownTopicOrPartitionError:
        raise CommandError(f"there is no ledger topic {topic}: no exactly-once sink has written yet") from None
    listed = link.run(link.admin.list_transactions(f"^{PREFIX}.*"))
    described = link.run(link.admin.describe_transactions([each.transactional_id for each in listed]))
    transactions = [
        Transaction(each.transactional_id, each.state, each.producer_id, each.producer_epoch, each.start_ms)
        for each in described.values()
    ]
    # Of a sink that was stopped before it had written to the ledger, its open transactions are all there is.
    new = {sink_of(each.transactional_id) for each in transactions if each.is_open} - ledgers.of.keys() - {None}
    return {
        **{sink: view(ledger, transactions) for sink, ledger in ledgers.of.items()},
        **{str(sink): view(Ledger(str(sink)), transactions) for sink in new},
    }


def the_view(link: KafkaLink, topic: str, sink: str) -> SinkView:
    """One sink. CommandError if the ledger does not know it."""
    found = views(link, topic)
    if sink not in found:
        raise CommandError(f"the ledger {topic} knows no sink {sink}; `ottla pipeline list` shows which there are")
    return found[sink]


def as_data(found: SinkView) -> dict[str, Any]:
    """A sink as JSON."""
    return {
        "sink": found.sink,
        "state": found.state,
        "batches": [
            {
                **_query_row(each),
                "offsets_digest": each.plan.offsets,
                "slots": [{**slot._asdict(), "state": slot.state.value} for slot in each.slots],
            }
            for each in found.batches
        ],
        "open": _open_rows(found),
    }


def _sink_row(found: SinkView) -> dict[str, object]:
    opened = [*found.decided, *found.undecided]
    began = [each.start_ms for each in opened if each.start_ms >= 0]
    last = found.last
    return {
        "sink": found.sink,
        "state": found.state,
        "queries": len(found.batches),
        "last_query": None if last is None else last.key.query,
        "last_batch": None if last is None else last.key.batch,
        "open": len(opened),
        "open_since": utc(min(began)) if began else None,
    }


def _query_row(batch: Batch) -> dict[str, object]:
    return {
        "query": batch.key.query,
        "batch": batch.key.batch,
        "state": batch.state.value,
        "topic": batch.plan.topic,
        "slots": len(batch.slots),
        "rows": sum(each.rows for each in batch.slots),
        "lost": list(batch.lost),
    }


def _open_rows(found: SinkView) -> list[Mapping[str, object]]:
    return [_open_row(each, decided=each in found.decided) for each in (*found.decided, *found.undecided)]


def _open_row(transaction: Transaction, *, decided: bool) -> dict[str, object]:
    since = None if transaction.start_ms < 0 else utc(transaction.start_ms)
    return {**transaction._asdict(), "decided": decided, "since": since}


def told(transactions: tuple[Transaction, ...], what: str) -> str:
    """How many transactions, and since when."""
    began = [each.start_ms for each in transactions if each.start_ms >= 0]
    since = f", open since {utc(min(began))}" if began else ""
    names = ", ".join(each.transactional_id.rpartition("/slot-")[2] for each in transactions)
    return f"{counted(len(transactions), what)} (slot {names}{since})"
