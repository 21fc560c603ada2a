"""Keeps a balance for each account with `transformWithState`: Kafka → Spark → Kafka, exactly once.

    pip install protobuf 'pandas<3'   # what transformWithState needs
    ottla run examples/with_state.py --bootstrap 127.0.0.1:9092 --input bookings --output balances --checkpoint ck

A booking is a record with the account as key and a whole number as value. For each account of a micro-batch one
record says its balance, and how many bookings it had. A booking that would overdraw the account is not made; it goes to
the topic OUTPUT.refused. State and output always fit: what a crash undoes, it undoes in both.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Account(StatefulProcessor):  # type: ignore[misc]
    """One account: its balance, and its bookings so far."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state. Called once in each task."""
        self._state = handle.getValueState("account", "balance long, bookings long")

    def handleInputRows(self, key: tuple[str], rows: Iterator[Row], timers: Any) -> Iterator[Row]:  # noqa: N802
        """Book what came; then the balance."""
        balance, bookings = self._state.get() if self._state.exists() else (0, 0)
        # Rows of one partition come in the order of their offsets only if they are sorted here.
        for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
            if balance + row.amount < 0:
                yield Row(key=key[0], value=str(row.amount), refused=True)
                continue
            balance, bookings = balance + row.amount, bookings + 1
        self._state.update((balance, bookings))
        yield Row(key=key[0], value=f"{balance} after {bookings}", refused=False)

    def close(self) -> None:
        """Nothing is held."""


def balances(bookings: DataFrame, output: str) -> DataFrame:
    """Key, value and topic of the output records."""
    amount = "try_cast(CAST(value AS STRING) AS LONG) AS amount"
    amounts = bookings.selectExpr("CAST(key AS STRING) AS account", amount, "partition", "offset")
    accounts = amounts.where("amount IS NOT NULL").groupBy("account")
    columns = "key string, value string, refused boolean"
    states = accounts.transformWithState(Account(), columns, outputMode="Append", timeMode="None")
    return states.selectExpr("key", "value", f"if(refused, '{output}.refused', '{output}') AS topic")


def start(spark: SparkSession, options: argparse.Namespace) -> Any:
    """Start the query."""
    kafka = {"kafka.bootstrap.servers": options.bootstrap}
    bookings = (
        spark.readStream.format("ottla")
        .options(**kafka)
        .option("subscribe", options.input)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = (
        balances(bookings, options.output)
        .writeStream.format("ottla")
        .options(**kafka)
        .option("sink.id", f"{options.output}-accounts")
        .option("checkpointLocation", options.checkpoint)
    )
    trigger = {"availableNow": True} if options.available_now else {"processingTime": "1 second"}
    return writer.trigger(**trigger).start()


def main() -> None:
    """Run until stopped, or with --available-now until everything that is there has been booked."""
    parser = argparse.ArgumentParser(description="Keep the balance of each account.")
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="topic of bookings")
    parser.add_argument("--output", required=True, help="topic of balances; OUTPUT.refused has to be there, too")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps state, and how far it is")
    parser.add_argument("--available-now", action="store_true", help="stop when everything is booked")
    options = parser.parse_args()
    session = SparkSession.builder.appName("balances").config("spark.sql.streaming.stateStore.providerClass", PROVIDER)
    start(session.getOrCreate(), options).awaitTermination()


if __name__ == "__main__":
    main()
