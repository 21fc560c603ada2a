"""Counts the words of every line: Kafka → Spark → Kafka, exactly once.

    ottla run examples/wordcount.py --bootstrap 127.0.0.1:9092 --input lines --output words --checkpoint /tmp/words

Each line becomes one record for each word in it: the word, how often the line has it, and where the line came from.
Kill anything at any time and start the script again with the same checkpoint: the output has every word of every line,
once. `--semantics at-least-once` writes without transactions, as Spark's own Kafka sink does, and repeats after a kill.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ottla.spark.client_file import kafka_options


def words_of(lines: DataFrame) -> DataFrame:
    """One row a line and word: key and value of the output record."""
    words = F.filter(F.split(F.col("value").cast("string"), r"\s+"), lambda word: word != "")
    return (
        lines.select("partition", "offset", words.alias("words"))
        .select("partition", "offset", "words", F.explode(F.array_distinct("words")).alias("word"))
        .withColumn("count", F.expr("size(filter(words, w -> w = word))"))
        .select(
            F.col("word").alias("key"),
            F.to_json(F.struct("word", "count", "partition", "offset")).alias("value"),
        )
    )


def main() -> None:
    """Run until stopped, or with --available-now until everything that is there has been counted."""
    parser = argparse.ArgumentParser(description="Count the words of every line, from topic to topic, exactly once.")
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--config", metavar="FILE", help="a client's properties: TLS, SASL (docs/security.md)")
    parser.add_argument("--input", required=True, help="topic of lines")
    parser.add_argument("--output", required=True, help="topic of words")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps how far it is")
    parser.add_argument("--semantics", default="exactly-once", choices=["exactly-once", "at-least-once"])
    parser.add_argument("--atomicity", default="slot", choices=["slot", "batch"], help="what is visible at one moment")
    parser.add_argument("--max-offsets-per-trigger", default="20000", help="lines in a micro-batch")
    parser.add_argument("--available-now", action="store_true", help="stop when everything is counted")
    options = parser.parse_args()
    # both sides of the query reach the cluster in the same way
    kafka = kafka_options(options.config) if options.config else {}

    spark = SparkSession.builder.appName("wordcount").getOrCreate()
    lines = (
        spark.readStream.format("ottla")
        .options(**kafka)
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", options.input)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
        # any Kafka tool sees how far the pipeline is: ottla groups offsets <output>-wordcount
        .option("kafka.group.id", f"{options.output}-wordcount")
        .load()
    )
    writer = (
        words_of(lines)
        .writeStream.format("ottla")
        .options(**kafka)
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("topic", options.output)
        .option("semantics", options.semantics)
        .option("atomicity", options.atomicity)
        .option("sink.id", f"{options.output}-wordcount")
        .option("checkpointLocation", options.checkpoint)
    )
    trigger = {"availableNow": True} if options.available_now else {"processingTime": "0 seconds"}
    query = writer.trigger(**trigger).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
