"""Where Spark finds `format("ottla")`: it imports every `pyspark_*` module and registers its `DefaultSource`."""

from ottla.spark.datasource import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
