"""A flow from one topic to another. One flow writes to a sink: a second one needs a sink with another `sink.id`."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

spark = SparkSession.active()
servers = {"kafka.bootstrap.servers": spark.conf.get("words.bootstrap")}
output = spark.conf.get("words.output")

dp.create_sink("words_topic", "ottla", {**servers, "topic": output, "sink.id": f"{output}-declarative"})


@dp.append_flow(target="words_topic")  # type: ignore[untyped-decorator]
def words() -> DataFrame:
    """One record for each word of a line: the word, and where its line came from."""
    lines = (
        spark.readStream.format("ottla")
        .options(**servers)
        .option("subscribe", spark.conf.get("words.input"))
        .option("startingOffsets", "earliest")
        .load()
    )
    return lines.select(
        F.explode(F.split(F.col("value").cast("string"), r"\s+")).alias("key"),
        F.to_json(F.struct("partition", "offset")).alias("value"),
    )
