"""A job for cron: takes what came since it last ran, and ends: Kafka → Spark → Kafka, exactly once.

    0 2 * * *  ottla run examples/nightly.py --bootstrap 127.0.0.1:9092 --input sales --output totals --checkpoint ck

With the trigger `availableNow` a query reads up to the offsets that are there when it starts, in micro-batches of
--max-offsets-per-trigger, and ends. The checkpoint says where the next run begins; a run that was killed is finished by
the next one. Exit code 0 says that everything is written.

The totals of a run become visible together, with `atomicity=batch`, if one micro-batch holds them. Let one run end
before the next begins: of two the later one takes over the sink, and the earlier one stops with an error.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession

from ottla.spark.pipeline import foreach_batch


def totals_of(sales: DataFrame) -> DataFrame:
    """One row a key: how much it is, and of how many sales; text that is no number counts as nothing."""
    amount = "try_cast(CAST(value AS STRING) AS DECIMAL(18, 2)) AS amount"
    totals = sales.selectExpr("key", amount).groupBy("key").agg({"amount": "sum", "*": "count"})
    return totals.selectExpr("key", "concat_ws(' of ', `sum(amount)`, `count(1)`) AS value")


def main() -> None:
    """Write the totals of each key so far, where they have changed."""
    parser = argparse.ArgumentParser(description="Add up what came since the last run.")
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="topic of sales")
    parser.add_argument("--output", required=True, help="topic of totals; it may be compacted")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps the totals, and how far it is")
    parser.add_argument("--max-offsets-per-trigger", default="1000000", help="sales in a micro-batch")
    options = parser.parse_args()

    spark = SparkSession.builder.appName("nightly").getOrCreate()
    kafka = {"kafka.bootstrap.servers": options.bootstrap}
    sales = (
        spark.readStream.format("ottla")
        .options(**kafka)
        .option("subscribe", options.input)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
        .load()
    )
    sink = {**kafka, "topic": options.output, "sink.id": f"{options.output}-nightly", "atomicity": "batch"}
    writer = totals_of(sales).writeStream.outputMode("update").foreachBatch(foreach_batch(sink))
    writer.option("checkpointLocation", options.checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
