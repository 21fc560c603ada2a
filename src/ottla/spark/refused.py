"""A streaming read that cannot be: an option is wrong, or the schema.

Spark's worker (4.3) stops the reader in any case, also the one that it was not given. So an error of `streamReader()`
ends in an UnboundLocalError, and what a user sees last is that. A reader that says the error when it is asked for
something is stopped like any other.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ottla.base.errors import ConfigError


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """It answers with an error."""

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Raises ConfigError, as the others."""
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """What a new query asks."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What a query asks with the trigger `availableNow`."""
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """What a query asks that goes on."""
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What a replay asks."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task."""
        self._refuse()

    def stop(self) -> None:
        """The query is over."""
