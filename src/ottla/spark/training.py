"""The job from which Java learns the classes that Spark needs (`class_archive`).

`python -m ottla.spark.training HOST:PORT INPUT OUTPUT FOLDER` reads and writes as pipelines do: a stream that changes
rows, one that counts them by window, and a batch. It ends when Java has ended, which writes the archive last.
"""

import sys
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> int:
    """Run it; the exit code of Java."""
    bootstrap, source, target, folder = arguments
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812

    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    broker = {"kafka.bootstrap.servers": bootstrap}
    asked = {**broker, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("ottla").options(**asked).load()
    late = rows.withWatermark("timestamp", "1 minute")
    counts = late.groupBy(F.window("timestamp", "1 minute"), "key").count()
    changed = rows.selectExpr("key", "upper(cast(value as string)) AS value")
    counted = counts.selectExpr("key", "cast(count AS string) AS value")
    for name, frame in (("changed", changed), ("counted", counted)):
        writer = frame.writeStream.format("ottla").options(**broker, topic=target).outputMode("append")
        checkpoint = str(Path(folder, name))
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    read = spark.read.format("ottla").options(**asked).load().where("partition = 0")
    assert read.groupBy("key").count().collect()
    java: Any = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()
    return int(java.wait())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
