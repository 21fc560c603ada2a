"""Makes a compacted topic of a table's changes, the table's image: Kafka → Spark → Kafka, exactly once.

    ottla topics create customers --config cleanup.policy=compact
    ottla run examples/change_data.py --bootstrap 127.0.0.1:9092 --input customers.changes --output customers \\
        --checkpoint ck

A change is what Debezium writes, the row's key as the record's key: {"op": "c", "after": {…}} made, "u" updated, "d"
deleted. The image has the row's newest form under its key, and for a deleted row a record without a value (a
tombstone), which lets compaction forget the key.

The order of a row's changes is that of their partition, and it is kept: a task reads a range of one partition and
writes it in that order. So the changes need their key as the record's key, and the options minPartitions and
maxRecordsPerPartition, which cut a partition into several tasks, have no place here.
"""

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812


def image(changes: DataFrame) -> DataFrame:
    """Key and value of the output record; what is no change is left out."""
    text = F.col("value").cast("string")
    op, after = F.get_json_object(text, "$.op"), F.get_json_object(text, "$.after")
    known = changes.select("key", op.alias("op"), after.alias("after")).where("op IN ('c', 'r', 'u', 'd')")
    return known.selectExpr("key", "CASE WHEN op != 'd' THEN after END AS value")


def start(spark: SparkSession, options: argparse.Namespace) -> Any:
    """Start the query."""
    kafka = {"kafka.bootstrap.servers": options.bootstrap}
    changes = (
        spark.readStream.format("ottla")
        .options(**kafka)
        .option("subscribe", options.input)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = (
        image(changes)
        .writeStream.format("ottla")
        .options(**kafka)
        .option("topic", options.output)
        .option("sink.id", f"{options.output}-image")
        .option("checkpointLocation", options.checkpoint)
    )
    trigger = {"availableNow": True} if options.available_now else {"processingTime": "1 second"}
    return writer.trigger(**trigger).start()


def main() -> None:
    """Run until stopped, or with --available-now until all changes are in the image."""
    parser = argparse.ArgumentParser(description="Make a compacted topic of a table's changes.")
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="topic of changes")
    parser.add_argument("--output", required=True, help="compacted topic")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps how far it is")
    parser.add_argument("--available-now", action="store_true", help="stop when all changes are in the image")
    options = parser.parse_args()
    start(SparkSession.builder.appName("change data").getOrCreate(), options).awaitTermination()


if __name__ == "__main__":
    main()
