"""What the Spark source and sink raise.

OttlaError
├── ConfigError               an option is unknown, missing, or contradicts another (`ottla.base.errors`)
└── PipelineError
    ├── DataLossError         records that the query has not read are gone (`failOnDataLoss`)
    ├── OpenTransactionError  a bound lies after the start of an open transaction: records there cannot be read yet
    ├── DamagedRecordsError   records that the query needs are damaged on the broker's disk
    ├── LedgerFormatError     the ledger topic holds a record that no Ottla sink has written
    ├── RowError              a row of the sink cannot be a record, or cannot go where it is to go
    ├── InDoubtError          a batch is partly committed and cannot be completed safely; the error names it
    ├── SinkFencedError       another driver has taken over this sink id: this query must stop
    ├── SlotsLostError        a slot's transaction was aborted; a restart of the query writes the slot again
    └── UnknownOutcomeError   a request got no answer in time; a restart of the query finds out what happened
"""

from ottla.base.errors import OttlaError


class PipelineError(OttlaError):
    """Any fault of the Spark source or sink that is not a configuration error."""


class DataLossError(PipelineError):
    """Offsets that the query still needs are not in the log any more."""


class OpenTransactionError(PipelineError):
    """A read shall begin or end after the last stable offset. Nothing is lost, but the records cannot be read yet."""


class DamagedRecordsError(PipelineError):
    """Records that a query needs are damaged on the broker's disk. `failOnDataLoss=false` does not skip them."""

    def __init__(self, tp: object, offset: int, reason: str) -> None:
        super().__init__(
            f"{tp}: what follows from offset {offset} on is damaged ({reason}); put the partition's log file back, or "
            "delete its records up to what can be read, and start the query again"
        )


class LedgerFormatError(PipelineError):
    """A record of the ledger topic cannot be understood."""


class RowError(PipelineError):
    """A row cannot be written. To run the query again gives the same row: the query, or the topic, has to change."""


class InDoubtError(PipelineError):
    """Part of `batch` is committed, and nobody knows the rest: going on could lose or repeat records."""

    def __init__(self, sink: str, query: str, batch: int, why: str) -> None:
        self.sink, self.query, self.batch, self.why = sink, query, batch, why
        super().__init__(f"sink {sink}: batch {batch} of query {query} is in doubt: {why}")

    def __reduce__(self) -> tuple[type["InDoubtError"], tuple[str, str, int, str]]:
        return InDoubtError, (self.sink, self.query, self.batch, self.why)


class SinkFencedError(PipelineError):
    """A newer driver has claimed the sink id, or somebody else has ended a task's transaction."""


class SlotsLostError(PipelineError):
    """A decision names transactions that were aborted before the driver could commit them."""


class UnknownOutcomeError(PipelineError):
    """A request of the source or the sink was not answered in time. Nobody knows yet whether it was carried out."""
