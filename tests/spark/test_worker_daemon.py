"""Spark's daemon of Python workers that has imported their modules beforehand, and what none of them imports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

_on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere Spark's own daemon serves")
#: As Spark sets it for tasks of one core: then numpy's library has no threads.
_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
_WITH_A_THREAD = """
import sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
from ottla.spark.worker_daemon import main
main(sys.argv[1:])
"""
_IMPORTS = """
import sys
from importlib import import_module
from ottla.spark.worker_daemon import IMPORTED, strange_threads
for module in IMPORTED:
    import_module(module)
print(strange_threads(), "pandas" in sys.modules)
"""
#: What a task does with Arrow: the source's rows, the sink's, rows divided by partition, and records of them.
_ROWS = """
import sys
import pyarrow as pa
from types import SimpleNamespace
from ottla.base.types import TopicPartition
from ottla.client.producer.columns import split_by_partition
from ottla.spark.columns import Chunk, RowDigest
from ottla.spark.slot_writer import rows_by_topic
from ottla.wire.columns import encode_in_batches
from ottla.wire.records import Record, encode_batch

source = pa.schema({
    "key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestampType": pa.int32(),
})
batch = encode_batch([Record(0, 1, b"k", b"v", ()), Record(1, 2, None, b"w", ())])
rows = next(Chunk(batch, (), committed=True).rows(TopicPartition("t", 3), 0, 2, source))
print(rows.column("topic").to_pylist(), rows.column("partition").to_pylist())
for topic, written in rows_by_topic(SimpleNamespace(topic=None, ledger_topic="l"), rows):
    RowDigest().update(rows)
    for number, part in split_by_partition(written, None, lambda key: 1):
        print(topic, number, sum(builder.count for builder in encode_in_batches(part, 1_000, now_ms=5)))
print("pandas" in sys.modules)
"""


def _lines(program: str) -> list[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=_ENVIRONMENT, capture_output=True, text=True, check=True).stdout.splitlines()


def _serving(command: Sequence[str]) -> str:
    """The command line of the daemon once it serves; the end of its input ends it."""
    with subprocess.Popen(
        [sys.executable, *command, "pyspark.worker"],
        env=_ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert len(daemon.stdout.read(4)) == 4, "the port"
        serving = Path(f"/proc/{daemon.pid}/cmdline").read_text().replace("\0", " ")
        daemon.stdin.close()
    return serving


@_on_linux
def test_what_is_imported_beforehand_starts_no_thread_that_a_fork_must_fear() -> None:
    assert _lines(_IMPORTS) == ["[] False"]
    assert "-m ottla.spark.worker_daemon pyspark.worker" in _serving(["-m", "ottla.spark.worker_daemon"])


@_on_linux
def test_with_any_other_thread_spark_s_own_daemon_serves() -> None:
    assert "-m pyspark.daemon pyspark.worker" in _serving(["-c", _WITH_A_THREAD])


def test_reading_and_writing_rows_does_not_import_pandas() -> None:
    """It takes a third of a second, and each new worker would wait for it."""
    assert _lines(_ROWS) == ["['t', 't'] [3, 3]", "t 3 2", "False"]
