"""Passes on the first record of each key and drops its repetitions: Kafka → Spark → Kafka, exactly once.

    ottla run examples/deduplicate.py --bootstrap 127.0.0.1:9092 --input events --output once --checkpoint ck

For a topic whose producers write some records twice (at least once, without idempotence), each with an id as its key.
A key is remembered for WITHIN of event time after its first record; records with timestamps older than that are
dropped. Records without a key are one key: give each an id.
"""

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession

WITHIN = "1 hour"


def first_of_each(events: DataFrame) -> DataFrame:
    """Key and value of the output record. Which of two repetitions in one micro-batch stays is not said."""
    return events.withWatermark("timestamp", WITHIN).dropDuplicatesWithinWatermark(["key"]).select("key", "value")


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
        first_of_each(events)
        .writeStream.format("ottla")
        .options(**kafka)
        .option("topic", options.output)
        .option("sink.id", f"{options.output}-dedup")
        .option("checkpointLocation", options.checkpoint)
    )
    trigger = {"availableNow": True} if options.available_now else {"processingTime": "1 second"}
    return writer.trigger(**trigger).start()


def main() -> None:
    """Run until stopped, or with --available-now until everything that is there has been passed on."""
    parser = argparse.ArgumentParser(description="Pass on the first record of each key.")
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="topic with repetitions")
    parser.add_argument("--output", required=True, help="topic without them")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps state, and how far it is")
    parser.add_argument("--available-now", action="store_true", help="stop when everything is passed on")
    options = parser.parse_args()
    start(SparkSession.builder.appName("deduplicate").getOrCreate(), options).awaitTermination()


if __name__ == "__main__":
    main()
