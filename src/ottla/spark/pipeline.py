"""What joins source and sink: the checkpoint's offset log (SPEC S2, S3).

Spark tells a sink nothing about the source. But before a micro-batch runs, Spark writes its offsets into the
checkpoint, once, and a replay of the batch reads them from there. So the driver reads that file before it decides a
batch. The file's digest goes into the decision: a replay has the same digest, a new batch with the same number has
another. The offsets of our source name a consumer group, and the decision's transaction commits them for that group. So
the group's committed offsets always fit the output.
"""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

from ottla.base.errors import ConfigError
from ottla.spark.errors import PipelineError
from ottla.spark.plan import SourceOffset
from ottla.spark.requests import GroupOffsets

log = logging.getLogger("ottla.spark")

_NO_SOURCE = "-"


def sources_of_log(text: str) -> list[SourceOffset]:
    """What Ottla's sources say in a file of the checkpoint's offset log.

    Line 1 is the log's version, line 2 the batch's metadata. Then comes one line for each source; in version 2 it
    starts with the source's name and a colon. Raises PipelineError when the file has another form.
    """
    version, *lines = text.split("\n")
    if version not in ("v1", "v2") or not lines:
        raise PipelineError(f"the checkpoint's offset log has an unknown form, it begins with {version[:20]!r}")
    found = (_source_offset(line if version == "v1" else line.partition(":")[2]) for line in lines[1:])
    return [offset for offset in found if offset is not None]


def group_offsets(sources: Iterable[SourceOffset], group: str | None) -> dict[str, dict[str, dict[int, int]]]:
    """Group → topic → partition → next offset; `group` overrides those of the sources. Who has none is left out.

    Of a partition that several sources read for one group, the offset is that of the one that is behind: what begins at
    the group's offset later leaves out nothing that a source has still to read.
    """
    found: dict[str, dict[str, dict[int, int]]] = {}
    for offset in sources:
        name = group or offset.group
        if name is not None:
            for tp, position in offset.end.items():
                partitions = found.setdefault(name, {}).setdefault(tp.topic, {})
                partitions[tp.partition] = min(position, partitions.get(tp.partition, position))
    return found


def of_this_cluster(
    offsets: GroupOffsets, read: Mapping[str, str], here: Mapping[str, str]
) -> tuple[GroupOffsets, list[str]]:
    """The offsets of topics that the sink's cluster has, and the names of the others.

    `read` has the ids of the topics that were read, `here` those of the sink's cluster, as far as they have one. A
    topic of the same name with another id is another one: of another cluster, or made anew.
    """
    names = {topic for topics in offsets.values() for topic in topics}
    same = {topic for topic in names & here.keys() if here[topic] in ("", read.get(topic, here[topic]))}
    kept = {
        group: {topic: partitions for topic, partitions in topics.items() if topic in same}
        for group, topics in offsets.items()
    }
    return {group: topics for group, topics in kept.items() if topics}, sorted(names - same)


def _source_offset(line: str) -> SourceOffset | None:
    if not line or line == _NO_SOURCE:
        return None
    try:
        offset = SourceOffset.from_json(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # an offset of a source that is not ours
    return None if offset.adopted else offset


class Planned(NamedTuple):
    """What the checkpoint says of a batch. `digest` (hexadecimal) is None if it could not be read."""

    digest: str | None
    offsets: GroupOffsets
    #: Why the file, or the offsets in it, could not be read.
    why: str = ""
    #: The ids of the sources' topics.
    ids: Mapping[str, str] = {}


#: How long the driver waits for a file of the checkpoint. The batch's transactions stay open meanwhile, and the client
#: of a remote file system that is gone may try for minutes.
READ_S = 5.0
_ASK_AGAIN_S = 300.0
#: Checkpoints that could not be read: why, and when the driver may try again.
_UNREADABLE: dict[str, tuple[str, float]] = {}


def planned(
    checkpoint: str | None, batch: int, group: str | None, *, needed: bool = False, wait_s: float = READ_S
) -> Planned:
    """What the checkpoint's offsets/`batch` says. Raises PipelineError if `group` needs the file and it cannot be read.

    After a checkpoint could not be read, it is left alone for some minutes, unless a batch needs it.
    """
    digest = None
    try:
        if checkpoint is None:
            raise FileNotFoundError("checkpointLocation is not an option of the writer")
        text = _read_in_time(checkpoint, f"offsets/{batch}", wait_s, needed=needed or group is not None)
        digest = hashlib.sha256(text).hexdigest()[:32]
        sources = sources_of_log(text.decode())
        ids = {topic: topic_id for source in sources for topic, topic_id in source.ids.items()}
        return Planned(digest, group_offsets(sources, group), ids=ids)
    except (OSError, PipelineError, ValueError) as error:
        if group is not None:
            raise PipelineError(f"kafka.group.id {group}: the batch's offsets cannot be read: {error}") from error
        return Planned(digest, {}, str(error))


def query_of(checkpoint: str | None) -> str | None:
    """The id of the query that a checkpoint is of, which moves with it; None if it cannot be read."""
    if checkpoint is None:
        return None
    try:
        return str(json.loads(_read_in_time(checkpoint, "metadata", READ_S, needed=False))["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def checkpoint_of(option: str | None, session: str | None, name: str | None) -> str | None:
    """Where a query's checkpoint is: the writer's option, or the query's name in the session's location."""
    if option is not None or session is None or name is None:
        return option  # a query without a name gets a directory that no restart finds again
    return f"{session.rstrip('/')}/{name}"


def _read_in_time(checkpoint: str, file: str, wait_s: float, *, needed: bool) -> bytes:
    """The bytes of a file of the checkpoint. Raises OSError."""
    why, until_s = _UNREADABLE.get(checkpoint, ("", 0.0))
    if time.monotonic() < until_s and not needed:
        raise OSError(why)
    uri = f"{checkpoint.rstrip('/')}/{file}"
    text: Future[bytes] = Future()

    def read() -> None:
        try:
            text.set_result(_read(uri))
        except BaseException as error:  # noqa: BLE001 - it is raised where the bytes are waited for
            text.set_exception(error)

    # The read runs in a thread of its own because nothing can stop it. A daemon thread does not keep the process alive.
    threading.Thread(target=read, name="ottla-checkpoint", daemon=True).start()
    try:
        found = text.result(wait_s)
    except FileNotFoundError:
        raise  # the file system has answered
    except OSError as error:
        why = str(error) or f"{uri}: no answer within {wait_s:g} s"
        _UNREADABLE[checkpoint] = why, time.monotonic() + _ASK_AGAIN_S
        raise OSError(why) from error
    _UNREADABLE.pop(checkpoint, None)
    return found


def _read(uri: str) -> bytes:
    from pathlib import Path

    from pyarrow import ArrowException, fs

    if uri.startswith("file:"):  # Hadoop does not percent-encode paths
        uri = "/" + uri.removeprefix("file:").lstrip("/")
    if "://" in uri:
        uri = uri.replace("s3a://", "s3://", 1).replace(" ", "%20")
    else:
        uri = str(Path(uri).absolute())
    try:
        files, path = fs.FileSystem.from_uri(uri)
    except ArrowException as error:
        raise OSError(f"{uri}: {error}") from error
    with files.open_input_stream(path) as stream:
        text: bytes = stream.read()
    return text


#: For each sink id the query, batch and run that this driver wrote last.
_WRITTEN: dict[str, tuple[str, int, str]] = {}
#: The sink ids that threads of this driver write to now.
_WRITING: set[str] = set()
_LOCK = threading.Lock()
#: Queries whose checkpoint Spark did not tell us, and which the log has named already.
_NOT_FOUND: set[str] = set()


def foreach_batch(options: Mapping[str, Any]) -> Callable[[Any, int], None]:
    """A function for `writeStream.foreachBatch` that writes each batch exactly once; the way to write in update mode.

    `options` are those of the sink; `sink.id` is required. For example
    `query.outputMode("update").foreachBatch(foreach_batch({"kafka.bootstrap.servers": …, "sink.id": "totals"}))`.
    A function that writes more than once needs a sink id for each write. With one id for both, the sink would take the
    second write for a replay of the first. With `kafka.group.id` this write's decision commits the source's offsets for
    that group; where a function writes more than once, give it to the last write. What it returns may be called in any
    thread while its micro-batch runs. Raises ConfigError; PipelineError with Spark Connect.
    """
    given = {str(name): value for name, value in options.items()}
    lower = {name.lower(): str(value) for name, value in given.items()}
    exactly_once = lower.get("semantics", "exactly-once").lower() == "exactly-once"
    sink = lower.get("sink.id", "")
    if exactly_once and not sink:
        raise ConfigError("foreach_batch needs the option sink.id: another for each write, the same after a restart")
    _require_own_session()

    def write(frame: Any, batch_id: int) -> None:
        _require_own_session()
        query, run = _query_and_run(frame.sparkSession)
        writer = frame.write.format("ottla").options(**given)
        if exactly_once and "checkpointlocation" not in lower:
            checkpoint = _checkpoint_of_running(frame.sparkSession, query)
            if checkpoint is None and "kafka.group.id" in lower:
                raise ConfigError(
                    f"kafka.group.id {lower['kafka.group.id']}: the offsets are in the query's checkpoint, and where "
                    "that is cannot be found; give foreach_batch the option checkpointLocation"
                )
            writer = writer if checkpoint is None else writer.option("checkpointLocation", checkpoint)
        writer = writer.option("queryId", query).option("batchId", batch_id).mode("append")
        with _active(frame.sparkSession), _once(sink, (query, batch_id, run)) if exactly_once else nullcontext():
            writer.save()

    return write


@contextmanager
def _once(sink: str, written: tuple[str, int, str]) -> Iterator[None]:
    """A write of `written` to `sink`. Raises ConfigError if it would be taken for a replay of another one."""
    with _LOCK:
        if _WRITTEN.get(sink) == written:
            raise ConfigError(
                f"sink.id {sink} has written batch {written[1]} already: give each write of a foreachBatch its own"
            )
        if sink in _WRITING:
            raise ConfigError(f"sink.id {sink}: another thread writes to it now: give each write its own sink.id")
        _WRITING.add(sink)
    try:
        yield
        _WRITTEN[sink] = written
    finally:
        _WRITING.discard(sink)


@contextmanager
def _active(session: Any) -> Iterator[None]:
    """Spark finds a Python data source by the session that is active in the thread; a pool's thread has none."""
    sessions = session._jvm.org.apache.spark.sql.classic.SparkSession
    if sessions.getActiveSession().isDefined():
        yield
        return
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        sessions.clearActiveSession()


def _query_and_run(session: Any) -> tuple[str, str]:
    """The id of the query whose micro-batch this is, and of its run. Raises ConfigError if there is none."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    # Each query has a session of its own, which tells of it in any thread.
    with suppress(AttributeError, TypeError, Py4JError):  # private parts of Spark: other versions may lack them
        for running in session._jsparkSession.sharedState().activeStreamingQueries().values():
            if running.sparkSessionForStream().equals(session._jsparkSession):
                return str(running.id()), str(running.runId())
    # A frame of another session can be in the query's own thread.
    context = session.sparkContext
    query, run = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("spark.jobGroup.id")
    if query is not None and run is not None:
        return query, run
    raise ConfigError(
        "foreach_batch: of which streaming query these rows are cannot be told. Call it in the query's foreachBatch, "
        "with frames made of the one it is given; in a thread of your own, start that as pyspark.InheritableThread"
    )


def _require_own_session() -> None:
    """Raise PipelineError if the session is Spark Connect's: it does not tell which query a batch is of."""
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise PipelineError(
            "foreach_batch has to know the query and the run of a batch, which a session of Spark Connect does not "
            "tell. Run the script in the driver itself: `ottla run --master …`, or a session with master() instead of "
            "remote()"
        )


def _checkpoint_of_running(session: Any, query: str) -> str | None:
    """The checkpoint of a query that runs in this JVM; None where Spark does not tell us."""
    from py4j.protocol import Py4JError

    try:
        jvm = session._jvm
        running = (
            session._jsparkSession.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query))
        )
        return str(running.resolvedCheckpointRoot())
    except (AttributeError, TypeError, Py4JError) as error:  # private parts of Spark: other versions may lack them
        if query not in _NOT_FOUND:
            _NOT_FOUND.add(query)
            log.warning("query %s: give foreach_batch the option checkpointLocation, it is not found: %s", query, error)
        return None
