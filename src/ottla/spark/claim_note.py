"""Where a driver leaves its claim for its other process, which ends the batch.

Spark makes the sink's writer in one Python process and commits or aborts in another one. To that it gives the tasks'
messages, which carry the claim. When no task has ended there is no message, and nothing else goes from one process to
the other. Both know the folder of their Spark context on this machine, which is its own and ends with it. So another
driver never takes this claim for its own, on the same machine or elsewhere.
"""

import json
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from ottla.spark.ledger import Handle
from ottla.spark.options import SinkOptions


def leave_claim(options: SinkOptions, sink: str, driver: Handle) -> None:
    """Note that `driver` has claimed `sink` for the query with these options. What prevents that is no error."""
    path = _path(options)
    if path is None:
        return
    new = path.with_suffix(f".{os.getpid()}")
    try:
        new.write_text(json.dumps([sink, *driver]))
        new.replace(path)
    except OSError:
        with suppress(OSError):
            path.unlink()  # no claim is better than the one before: who has that would abort nothing, and say nothing


def claim_left(options: SinkOptions) -> tuple[str, Handle] | None:
    """The sink's id and its driver, as noted last under the same options in this Spark context."""
    path = _path(options)
    with suppress(OSError, ValueError, TypeError):
        if path is not None:
            sink, *driver = json.loads(path.read_text())
            return sink, Handle(*driver)
    return None


def _path(options: SinkOptions) -> Path | None:
    """None where Spark names no folder."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    named = [str(options.client.get("bootstrap.servers")), options.ledger_topic, options.sink_id]
    named += [options.checkpoint or "", options.query_name or ""]
    return Path(folder, f"ottla-claim-{sha256(json.dumps(named).encode()).hexdigest()[:32]}") if folder else None
