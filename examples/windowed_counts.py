"""Counts the records of each five minutes of event time, late ones too: Kafka → Spark → Kafka, exactly once.

    ottla run examples/windowed_counts.py --bootstrap 127.0.0.1:9092 --input clicks --output counts --checkpoint ck

Event time is the record's timestamp. A window is written once, when the newest timestamp seen is ten minutes behind its
end; until then records that come late are counted in it. What comes later still is dropped: raise LATE to wait longer,
at the price of later answers and more state.
"""

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

WINDOW, LATE = "5 minutes", "10 minutes"


def counts_of(events: DataFrame) -> DataFrame:
    """One row a key and window: key and value of the output record."""
    windows = events.withWatermark("timestamp", LATE).groupBy(F.window("timestamp", WINDOW), "key").count()
    start = F.date_format("window.start", "yyyy-MM-dd HH:mm").alias("start")
    return windows.select("key", F.to_json(F.struct(start, "count")).alias("value"))


def start(spark: SparkSession, options: argparse.Namespace) -> Any:
    """Start the query."""
    kafka = {"kafka.bootstrap.servers": options.bootstrap}
    events = (
        spark.readStream.format("ottla")
        .options(**kafka)
        .option("subscribe", options.input)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = (
        counts_of(events)
        .writeStream.format("ottla")
        .options(**kafka)
        .option("topic", options.output)
        .option("sink.id", f"{options.output}-windows")
        .option("checkpointLocation", options.checkpoint)
    )
    trigger = {"availableNow": True} if options.available_now else {"processingTime": "1 second"}
    return writer.trigger(**trigger).start()


def main() -> None:
    """Run until stopped, or with --available-now until everything that is there has been counted."""
    parser = argparse.ArgumentParser(description="Count records by key and five minutes of event time.")
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="topic of events")
    parser.add_argument("--output", required=True, help="topic of counts")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps state, and how far it is")
    parser.add_argument("--available-now", action="store_true", help="stop when everything is counted")
    options = parser.parse_args()
    start(SparkSession.builder.appName("windowed counts").getOrCreate(), options).awaitTermination()


if __name__ == "__main__":
    main()
