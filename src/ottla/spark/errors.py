"""What the Spark source and sink raise.

OttlaError
├── ConfigError            an option that is unknown, missing or contradicts another (`ottla.base.errors`)
└── PipelineError
    ├── DataLossError      records that the query has not read are gone (`failOnDataLoss`)
    ├── OpenTransactionError  a bound lies behind an open transaction, where committed records cannot be read yet
    ├── LedgerFormatError  the ledger topic holds something that no Ottla sink has written
    ├── InDoubtError       a batch is partly committed and cannot be completed safely; it is named
    ├── SinkFencedError    another driver has taken over this sink id: this query must stop
    ├── SlotsLostError     a slot's transaction was aborted by others; a restart of the query writes it again
    └── UnknownOutcomeError  no answer came in time; a restart of the query finds out what happened
"""

from ottla.base.errors import OttlaError


class PipelineError(OttlaError):
    """Any fault of the Spark source or sink that is not a configuration error."""


class DataLossError(PipelineError):
    """Offsets that the query still needs are not in the log any more."""


class OpenTransactionError(PipelineError):
    """A read is to begin or end behind the last stable offset: nothing is lost, but it cannot be had yet."""


class DamagedRecordsError(PipelineError):
    """Records that a query needs are damaged where they lie; `failOnDataLoss` does not pass over them."""

    def __init__(self, tp: object, offset: int, reason: str) -> None:
        super().__init__(
            f"{tp}: what follows from offset {offset} on is damaged ({reason}); put the partition's log file back, or "
            "delete its records up to what can be read, and start the query again"
        )


class LedgerFormatError(PipelineError):
    """A record of the ledger topic cannot be understood."""


class InDoubtError(PipelineError):
    """Part of `batch` is committed and the rest cannot be told from it: continuing could lose or repeat records."""

    def __init__(self, sink: str, query: str, batch: int, why: str) -> None:
        self.sink, self.query, self.batch, self.why = sink, query, batch, why
        super().__init__(f"sink {sink}: batch {batch} of query {query} is in doubt: {why}")

    def __reduce__(self) -> tuple[type["InDoubtError"], tuple[str, str, int, str]]:
        return InDoubtError, (self.sink, self.query, self.batch, self.why)


class SinkFencedError(PipelineError):
    """A newer driver has claimed the sink id."""


class SlotsLostError(PipelineError):
    """Transactions named by a decision were ended by somebody else before the driver could commit them."""


class UnknownOutcomeError(PipelineError):
    """A request that ends a transaction was not answered within its time."""
