"""A PySpark script that shows all that Spark knows of a query: plans, progress, its web pages, errors.

ottla run tests/hidden/spark_script.py RIGHT.properties WRONG.properties CHECKPOINT
"""

import json
import sys
import traceback
from urllib.request import urlopen

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ottla.spark.client_file import kafka_options
from ottla.spark.progress import listen

_PAGES = ("environment", "sql?details=true", "jobs", "stages?details=true", "allexecutors")
_HTML = ("environment/", "SQL/", "SQL/execution/?id=0", "StreamingQuery/", "jobs/")


def main() -> None:
    """Read, stream, show everything; then the same with the wrong password."""
    right, wrong, checkpoint = kafka_options(sys.argv[1]), kafka_options(sys.argv[2]), sys.argv[3]
    spark = SparkSession.builder.appName("hidden").getOrCreate()
    spark.sparkContext.setLogLevel("DEBUG")
    listen(spark, lambda report: print(report.line(), report.as_dict()))
    lines = spark.read.format("ottla").options(**right).option("subscribe", "said").load()
    lines.explain(mode="extended")
    print(lines.count(), lines._jdf.queryExecution().toString(), repr(lines))
    for name, options in (("right", right), ("wrong", {**right, **wrong})):
        try:
            source = spark.readStream.format("ottla").options(**options).option("subscribe", "said").load()
            sink = source.writeStream.format("ottla").options(**options).option("topic", "copied")
            sink = sink.option("sink.id", name).option("checkpointLocation", f"{checkpoint}/{name}")
            query = sink.trigger(availableNow=True).start()
            query.awaitTermination()
            query.explain(extended=True)
            print(json.dumps([dict(each) for each in query.recentProgress], default=str), query.status)
            print(f"{name}: done")
        except PySparkException as fault:
            print(f"{name}: {type(fault).__name__}", repr(fault), repr(fault.args))
            traceback.print_exc()
    web = spark.sparkContext.uiWebUrl
    assert web is not None
    application = f"{web}/api/v1/applications/{spark.sparkContext.applicationId}"
    for page in (*(f"{application}/{each}" for each in _PAGES), *(f"{web}/{each}" for each in _HTML)):
        with urlopen(page) as answer:
            print(page, answer.read().decode())
    spark.stop()


if __name__ == "__main__":
    main()
