"""What joins source and sink: the source's offsets are committed with the output (SPEC S3).

Spark tells a sink nothing of the source, but it writes the offsets of a micro-batch into the checkpoint before the
batch runs, and an offset of our source names its consumer group. So the driver, about to decide a batch, reads them
there and puts them into the decision's transaction: the group's committed offsets are exactly what the output is
made of.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ottla.base.errors import ConfigError
from ottla.spark.errors import PipelineError
from ottla.spark.plan import SourceOffset

log = logging.getLogger("ottla.spark")

_NO_SOURCE = "-"


def offsets_of_log(text: str, group: str | None) -> dict[str, dict[str, dict[int, int]]]:
    """Group → topic → partition → next offset, from a file of the checkpoint's offset log; `group` overrides theirs.

    Line 1 is the log's version, line 2 the batch's metadata, then one line for each source. Sources that are not
    Ottla's, and those without a group, are left out. Raises PipelineError when the file is not of that form.
    """
    version, *lines = text.split("\n")
    if not version.startswith("v") or not lines:
        raise PipelineError(f"the checkpoint's offset log has an unknown form, it begins with {version[:20]!r}")
    found: dict[str, dict[str, dict[int, int]]] = {}
    for line in lines[1:]:
        offset = _source_offset(line)
        name = group or (offset.group if offset is not None else None)
        if offset is not None and name is not None:
            for tp, position in offset.end.items():
                found.setdefault(name, {}).setdefault(tp.topic, {})[tp.partition] = position
    return found


def _source_offset(line: str) -> SourceOffset | None:
    if not line or line == _NO_SOURCE:
        return None
    try:
        return SourceOffset.from_json(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # another source's


def batch_offsets(checkpoint: str | None, batch: int, group: str | None) -> dict[str, dict[str, dict[int, int]]]:
    """The offsets to commit with `batch`. Raises PipelineError if `group` asks for them and they cannot be had."""
    try:
        if checkpoint is None:
            raise FileNotFoundError("checkpointLocation is not an option of the writer")
        return offsets_of_log(_read(f"{checkpoint.rstrip('/')}/offsets/{batch}"), group)
    except (OSError, PipelineError, ValueError) as error:
        if group is not None:
            raise PipelineError(f"kafka.group.id {group}: the batch's offsets cannot be read: {error}") from error
        log.debug("the checkpoint cannot be read, no group's offsets are committed: %s", error)
        return {}


def _read(uri: str) -> str:
    from pyarrow import fs

    files, path = fs.FileSystem.from_uri(
        uri.replace("s3a://", "s3://", 1) if "://" in uri or uri[:1] == "/" else _local(uri)
    )
    with files.open_input_stream(path) as stream:
        text: bytes = stream.read()
    return text.decode()


def _local(uri: str) -> str:
    from pathlib import Path

    return uri if uri.startswith("file:") else str(Path(uri).absolute())


#: For each sink id the query, batch and run that this driver wrote last.
_WRITTEN: dict[str, tuple[str, int, str]] = {}


def foreach_batch(options: Mapping[str, Any]) -> Callable[[Any, int], None]:
    """A function for `writeStream.foreachBatch` that writes each batch exactly once; the way to write in update mode.

    `options` are those of the sink; `sink.id` is required. For example
    `query.outputMode("update").foreachBatch(foreach_batch({"kafka.bootstrap.servers": …, "sink.id": "totals"}))`.
    A function that writes more than once needs a sink id for each write: under the same one the second would pass for a
    replay of the first. Raises ConfigError.
    """
    given = {str(name): value for name, value in options.items()}
    lower = {name.lower(): str(value) for name, value in given.items()}
    exactly_once = lower.get("semantics", "exactly-once").lower() == "exactly-once"
    sink = lower.get("sink.id", "")
    if exactly_once and not sink:
        raise ConfigError("foreach_batch needs the option sink.id: another for each write, the same after a restart")

    def write(frame: Any, batch_id: int) -> None:
        context = frame.sparkSession.sparkContext
        query, run = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("spark.jobGroup.id")
        written = (query, batch_id, run)
        if exactly_once and _WRITTEN.get(sink) == written:
            raise ConfigError(
                f"sink.id {sink} has written batch {batch_id} already: give each write of a foreachBatch its own"
            )
        writer = frame.write.format("ottla").options(**given)
        writer.option("queryId", query).option("batchId", batch_id).mode("append").save()
        _WRITTEN[sink] = written

    return write
