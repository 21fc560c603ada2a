"""The words of every line, as `examples/wordcount.py` counts them, in the output partition that their line had.

Without `--min-records` each partition of the input is a slot of its own. A slot writes to one partition only then, and
a reader sees it as soon as it is committed. Otherwise the slots' records lie mixed in all partitions, and those of a
committed slot wait behind those of an open one (the last stable offset).

`--plan random` gives other rows in other slots each time it runs: each row has a drawn number, and another one chooses
its slot. `--option` is any of the sink's.
"""

import argparse
import runpy
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "wordcount.py"
#: Slots of a random plan.
_SLOTS = 2


def _placed(words: DataFrame) -> DataFrame:
    return words.withColumn("partition", F.get_json_object("value", "$.partition").cast("int"))


def _random(words: DataFrame) -> DataFrame:
    """Spark seeds `rand` anew in every driver."""
    luck = F.concat(F.lit(', "luck": '), F.rand().cast("string"), F.lit("}"))
    drawn = words.withColumn("value", F.regexp_replace("value", r"\}$", luck))
    return drawn.repartition(_SLOTS, F.rand())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "input", "output", "checkpoint", "semantics", "atomicity", "max-offsets-per-trigger"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--min-records", type=int, default=1)
    parser.add_argument("--plan", default="placed", choices=["placed", "random"])
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--available-now", action="store_true")
    return parser.parse_args()


def _main() -> None:
    options = _options()
    spark = SparkSession.builder.appName("wordcount").getOrCreate()
    kafka = {"kafka.bootstrap.servers": options.bootstrap}
    lines = (
        spark.readStream.format("ottla")
        .options(**kafka)
        .option("subscribe", options.input)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
        .option("minRecordsPerPartition", options.min_records)
        .option("kafka.group.id", f"{options.output}-wordcount")
    )
    words = _placed(runpy.run_path(str(_EXAMPLE))["words_of"](lines.load()))
    writer = (
        (_random(words) if options.plan == "random" else words)
        .writeStream.format("ottla")
        .options(**kafka)
        .option("topic", options.output)
        .option("semantics", options.semantics)
        .option("atomicity", options.atomicity)
        .option("sink.id", f"{options.output}-wordcount")
        .option("checkpointLocation", options.checkpoint)
    )
    writer.options(**dict(each.split("=", 1) for each in options.option)).trigger(
        availableNow=True
    ).start().awaitTermination()


if __name__ == "__main__":
    _main()
