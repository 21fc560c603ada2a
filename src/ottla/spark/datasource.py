"""`format("ottla")`, as Spark sees it."""

from typing import Any

from pyspark.sql.datasource import DataSource

from ottla.base.errors import ConfigError
from ottla.spark.columns import HEADERS_SCHEMA, SOURCE_SCHEMA, check_source_schema
from ottla.spark.options import SOURCE_OPTIONS, SourceOptions, sink_options, source_options
from ottla.spark.refused import RefusedStreamReader
from ottla.spark.sink import OttlaStreamWriter, OttlaWriter
from ottla.spark.source import OttlaReader, OttlaStreamReader


class OttlaDataSource(DataSource):  # type: ignore[misc]
    """Kafka topics as a source and as a sink, for batch and streaming. The options are in `ottla.spark.options`."""

    def __init__(self, options: Any) -> None:
        self.options = dict(options)
        # Spark calls __init__ in the process that plans a query, and unpickles a copy in the one that commits it.
        self._made_here = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made_here": False}

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ottla"

    def schema(self) -> str:
        """The row schema of Spark's own Kafka connector."""
        given = {name.lower(): value for name, value in self.options.items()}
        with_headers = SOURCE_OPTIONS.find("includeHeaders").parse(given.get("includeheaders", False))
        return SOURCE_SCHEMA + (HEADERS_SCHEMA if with_headers else "")

    def reader(self, schema: Any) -> OttlaReader:
        """A batch read."""
        return OttlaReader(self._source_options(schema, streaming=False), schema)

    def streamReader(self, schema: Any) -> OttlaStreamReader | RefusedStreamReader:  # noqa: N802
        """A streaming read. What is wrong with it is told when the reader is asked for something."""
        try:
            return OttlaStreamReader(self._source_options(schema, streaming=True), schema)
        except ConfigError as error:
            return RefusedStreamReader(error)

    def _source_options(self, schema: Any, *, streaming: bool) -> SourceOptions:
        """Raises ConfigError, also for a schema that a user has given and that is not the source's own."""
        options = source_options(self.options, streaming=streaming)
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        check_source_schema(columns, with_headers=options.include_headers)
        return options

    def writer(self, schema: Any, overwrite: bool) -> OttlaWriter:
        """A batch write. All writes without `queryId` and `batchId` count as one query, which the sink numbers.

        An exactly-once write needs a `sink.id`, as a stream does. A driver may die after its decision; the next driver
        finds the slots of that write by the sink's id and by nothing else.
        """
        return OttlaWriter(sink_options(self.options), schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> OttlaStreamWriter:  # noqa: N802
        """A streaming write. With the output mode complete (`overwrite`), each micro-batch has the whole result."""
        return OttlaStreamWriter(sink_options(self.options), schema, on_driver=self._made_here)
