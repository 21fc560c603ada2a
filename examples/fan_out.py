"""Writes each micro-batch to several topics, each in its own form: Kafka → Spark → Kafka, exactly once in each of them.

    ottla run examples/fan_out.py --bootstrap 127.0.0.1:9092 --input measurements --output good --checkpoint ck

A measurement is a number as text. Numbers go to OUTPUT, what is none to OUTPUT.bad, and OUTPUT.totals gets the count of
each key for each micro-batch. Each write has a `sink.id` of its own. After a crash Spark runs the whole function again,
and the sinks that have the batch already pass over it.

Rows that only differ in their topic need no `foreachBatch`: give the frame a column `topic` (examples/decode.py).
"""

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ottla.spark.pipeline import foreach_batch


def start(spark: SparkSession, options: argparse.Namespace) -> Any:
    """Start the query."""
    kafka = {"kafka.bootstrap.servers": options.bootstrap}

    def sink(topic: str) -> dict[str, str]:
        return {**kafka, "topic": topic, "sink.id": f"{topic}-fan-out"}

    good, bad = foreach_batch(sink(options.output)), foreach_batch(sink(f"{options.output}.bad"))
    totals = foreach_batch(sink(f"{options.output}.totals"))

    def write(frame: DataFrame, batch: int) -> None:
        rows = frame.selectExpr("key", "value", "try_cast(CAST(value AS STRING) AS DOUBLE) AS number").persist()
        try:
            good(rows.where("number IS NOT NULL"), batch)
            bad(rows.where("number IS NULL"), batch)
            totals(rows.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value"), batch)
        finally:
            rows.unpersist()

    measurements = (
        spark.readStream.format("ottla")
        .options(**kafka)
        .option("subscribe", options.input)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = measurements.writeStream.foreachBatch(write).option("checkpointLocation", options.checkpoint)
    trigger = {"availableNow": True} if options.available_now else {"processingTime": "1 second"}
    return writer.trigger(**trigger).start()


def main() -> None:
    """Run until stopped, or with --available-now until everything that is there has been written."""
    parser = argparse.ArgumentParser(description="Write numbers, what is none, and totals to three topics.")
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="topic of measurements")
    parser.add_argument("--output", required=True, help="topic of numbers; OUTPUT.bad and OUTPUT.totals are the others")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps how far it is")
    parser.add_argument("--available-now", action="store_true", help="stop when everything is written")
    options = parser.parse_args()
    start(SparkSession.builder.appName("fan out").getOrCreate(), options).awaitTermination()


if __name__ == "__main__":
    main()
