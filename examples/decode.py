"""Decodes JSON or Avro, works with its fields, and encodes the result as JSON: Kafka → Spark → Kafka, exactly once.

    ottla run examples/decode.py --form json --bootstrap 127.0.0.1:9092 --input orders --output large --checkpoint ck

JSON is decoded by Spark. Avro is decoded in Python by fastavro (`pip install fastavro`), so that no JAR is needed; with
Spark's own `from_avro`, start it with `--conf spark.jars.packages=…` of its spark-avro. Values that a schema registry's
producers wrote have five bytes before the record: 0, and the schema's number; with --framed they are passed over.

Rows that cannot be decoded go to OUTPUT.bad as they are, by the column `topic`, in the same transactions.
"""

import argparse
from io import BytesIO
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

FIELDS = "id long, item string, price double"
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "price", "type": "double"},
    ],
}
_FRAME_BYTES = 5


def avro_order(value: bytes | None, framed: bool) -> tuple[int, str, float] | None:
    """The fields of an order, or None if `value` is no order."""
    from fastavro import schemaless_reader  # imported where the rows are: in Spark's workers

    if value is None:
        return None
    body = BytesIO(bytes(value)[_FRAME_BYTES if framed else 0 :])
    try:
        order = schemaless_reader(body, AVRO, None)
    except (EOFError, IndexError, ValueError, UnicodeDecodeError):
        return None
    if body.read(1) or not isinstance(order, dict):
        return None
    return int(order["id"]), str(order["item"]), float(order["price"])


def order_of(value: Column, form: str, framed: bool) -> Column:
    """The decoded order; null if there is none in `value`."""
    if form == "avro":
        return F.udf(lambda each: avro_order(each, framed), FIELDS)(value)
    order = F.from_json(value.cast("string"), FIELDS)
    return F.when(order["id"].isNotNull(), order)  # text that is no JSON gives an order of nulls


def large(orders: DataFrame, form: str, framed: bool, output: str) -> DataFrame:
    """Key, value and topic of the output records: orders of 100 and more, and what is no order."""
    rows = orders.select("key", "value", order_of(F.col("value"), form, framed).alias("order"))
    good = F.struct(F.col("order.id").alias("id"), F.upper("order.item").alias("item"), F.col("order.price"))
    value = F.when(F.isnull("order"), F.col("value")).otherwise(F.to_json(good).cast("binary"))
    topic = F.when(F.isnull("order"), f"{output}.bad").otherwise(output)
    return rows.where("order IS NULL OR order.price >= 100").select("key", value.alias("value"), topic.alias("topic"))


def start(spark: SparkSession, options: argparse.Namespace) -> Any:
    """Start the query."""
    kafka = {"kafka.bootstrap.servers": options.bootstrap}
    orders = (
        spark.readStream.format("ottla")
        .options(**kafka)
        .option("subscribe", options.input)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = (
        large(orders, options.form, options.framed, options.output)
        .writeStream.format("ottla")
        .options(**kafka)
        .option("sink.id", f"{options.output}-decode")
        .option("checkpointLocation", options.checkpoint)
    )
    trigger = {"availableNow": True} if options.available_now else {"processingTime": "1 second"}
    return writer.trigger(**trigger).start()


def main() -> None:
    """Run until stopped, or with --available-now until everything that is there has been decoded."""
    parser = argparse.ArgumentParser(description="Decode orders, and pass on the large ones.")
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--input", required=True, help="topic of orders")
    parser.add_argument("--output", required=True, help="topic of large orders; OUTPUT.bad gets what is none")
    parser.add_argument("--form", choices=["json", "avro"], default="json", help="what the orders are")
    parser.add_argument("--framed", action="store_true", help="five bytes of a schema registry come first")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps how far it is")
    parser.add_argument("--available-now", action="store_true", help="stop when everything is decoded")
    options = parser.parse_args()
    start(SparkSession.builder.appName("decode").getOrCreate(), options).awaitTermination()


if __name__ == "__main__":
    main()
