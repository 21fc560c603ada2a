"""Writes orders to a table of SQLite and to a topic: after any crash both have the same ones (KIP-939).

    python examples/dual_write.py --bootstrap 127.0.0.1:9092 --database orders.db --output orders --crash-at 3:decided

The database decides. A transaction of Kafka is prepared: all is written, and only its commit is missing. Then one
transaction of the database inserts the order and keeps the handle of the prepared one. Then Kafka's is committed.
Whoever starts after a crash commits what the database knows; everything else is aborted.

`--crash-at 3:decided` ends the process, as kill -9 does, when order 3 is `sent`, `prepared`, `decided` or `committed`.
Start it again without that. The broker needs `unstable.api.versions.enable=true` and
`transaction.two.phase.commit.enable=true`; then a prepared transaction waits for as long as it takes.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
from contextlib import closing

from ottla import Admin, Producer, TransactionHandle, TransactionOutcome

STEPS = ("sent", "prepared", "decided", "committed")
_TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY); CREATE TABLE IF NOT EXISTS last (handle TEXT);"
)


def recover(database: sqlite3.Connection, bootstrap: str) -> None:
    """Commit the last transaction that the database has decided. FENCED: it was, and the next one had begun."""
    kept = database.execute("SELECT handle FROM last").fetchone()
    if kept is None:
        return
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        outcome = admin.end_transaction(TransactionHandle.parse(kept[0]), commit=True)
    if outcome not in (TransactionOutcome.ENDED, TransactionOutcome.FENCED):
        raise SystemExit(
            f"somebody else has ended the transaction {kept[0]}, which the database has decided: {outcome}"
        )


def write(producer: Producer, database: sqlite3.Connection, output: str, number: int, crash_at: str | None) -> None:
    """One order into both, or into neither."""

    def reached(step: str) -> None:
        if crash_at == f"{number}:{step}":
            os.kill(os.getpid(), signal.SIGKILL)

    with producer.transaction():
        producer.send(output, b"%d" % number).result()
        reached("sent")
        handle = producer.prepare_transaction()
        reached("prepared")
        with database:  # commits, or rolls back when something is raised
            database.execute("INSERT INTO orders VALUES (?)", (number,))
            database.execute("DELETE FROM last")
            database.execute("INSERT INTO last VALUES (?)", (str(handle),))
        reached("decided")
    reached("committed")


def main() -> None:
    """Write the orders that the table does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--database", default="orders.db")
    parser.add_argument("--output", default="orders", help="the topic; name the transactional id after it")
    parser.add_argument("--count", type=int, default=8, help="how many orders there are")
    parser.add_argument("--crash-at", metavar="NUMBER:STEP", help=f"STEP is one of {', '.join(STEPS)}")
    args = parser.parse_args()
    config = {
        "bootstrap.servers": args.bootstrap,
        "transactional.id": f"{args.output}-writer",
        "transaction.two.phase.commit.enable": True,
    }
    with closing(sqlite3.connect(args.database)) as database, Producer(config) as producer:
        database.executescript(_TABLES)
        recover(database, args.bootstrap)
        producer.init_transactions()  # aborts what was not decided
        (first,) = database.execute("SELECT COUNT(*) FROM orders").fetchone()
        for number in range(first, args.count):
            write(producer, database, args.output, number, args.crash_at)
    print(f"orders {first} to {args.count - 1} are in {args.database} and in {args.output}")


if __name__ == "__main__":
    main()
