"""Joins two topics, orders and their payments, by key and time: Kafka → Spark → Kafka, exactly once.

    ottla run examples/stream_join.py --bootstrap 127.0.0.1:9092 --orders orders --payments payments --output paid \\
        --checkpoint ck

Both topics have the order's id as key. A payment belongs to its order if it came within an hour after it. Spark keeps
an order as long as a payment may still come: the hour, and LATE, by which timestamps may be out of order.
"""

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

WITHIN, LATE = "1 hour", "10 minutes"


def paid(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """One row an order and payment: key and value of the output record."""
    left = orders.withWatermark("timestamp", LATE).alias("o")
    right = payments.withWatermark("timestamp", LATE).alias("p")
    in_time = F.expr(f"p.timestamp BETWEEN o.timestamp AND o.timestamp + INTERVAL {WITHIN}")
    pair = F.struct(F.col("o.value").cast("string").alias("ordered"), F.col("p.value").cast("string").alias("paid"))
    return left.join(right, (F.col("o.key") == F.col("p.key")) & in_time).select(
        "o.key", F.to_json(pair).alias("value")
    )


def start(spark: SparkSession, options: argparse.Namespace) -> Any:
    """Start the query."""
    kafka = {"kafka.bootstrap.servers": options.bootstrap}

    def read(topic: str) -> DataFrame:
        reader = spark.readStream.format("ottla").options(**kafka).option("subscribe", topic)
        return reader.option("startingOffsets", "earliest").load()

    writer = (
        paid(read(options.orders), read(options.payments))
        .writeStream.format("ottla")
        .options(**kafka)
        .option("topic", options.output)
        .option("sink.id", f"{options.output}-join")
        .option("checkpointLocation", options.checkpoint)
    )
    trigger = {"availableNow": True} if options.available_now else {"processingTime": "1 second"}
    return writer.trigger(**trigger).start()


def main() -> None:
    """Run until stopped, or with --available-now until everything that is there has been joined."""
    parser = argparse.ArgumentParser(description="Join orders with the payments that came within an hour.")
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--orders", required=True, help="topic of orders, by id")
    parser.add_argument("--payments", required=True, help="topic of payments, by the order's id")
    parser.add_argument("--output", required=True, help="topic of paid orders")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps state, and how far it is")
    parser.add_argument("--available-now", action="store_true", help="stop when everything is joined")
    options = parser.parse_args()
    start(SparkSession.builder.appName("stream join").getOrCreate(), options).awaitTermination()


if __name__ == "__main__":
    main()
