"""What is told of a streaming query beside Spark's own progress."""

import io
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.spark.live import LiveLine
from ottla.spark.plan import SourceOffset
from ottla.spark.progress import SinkNote, leave_note, read_notes, report_of

QUERY = "6f1c2a34-0000-4000-8000-1234567890ab"
NOTE = SinkNote(7, 12, 3, 0, 0, False)


def progress(*sources: dict[str, Any], **more: Any) -> dict[str, Any]:
    """As Spark gives it."""
    return {
        "id": QUERY,
        "name": "words",
        "batchId": 7,
        "timestamp": "2026-11-23T10:00:00.000Z",
        "numInputRows": 12,
        "processedRowsPerSecond": 240.0,
        "durationMs": {"triggerExecution": 50},
        "sources": list(sources),
        **more,
    }


def ours(start: list[int], end: list[int], latest: list[int] | None) -> dict[str, Any]:
    def offsets(of: list[int]) -> dict[TopicPartition, int]:
        return {TopicPartition("lines", number): offset for number, offset in enumerate(of)}

    return {
        "description": "PythonMicroBatchStream",
        "endOffset": SourceOffset(offsets(start), offsets(end)).to_json(),
        "latestOffset": None if latest is None else {"lines": {str(n): offset for n, offset in enumerate(latest)}},
        "numInputRows": 12,
    }


def test_s5_how_far_a_source_is_behind_is_computed_from_offsets() -> None:
    (source,) = report_of(progress(ours([0, 5], [10, 7], [10, 40]))).sources
    assert source.start == {"lines": {"0": 0, "1": 5}}
    assert source.end == {"lines": {"0": 10, "1": 7}}
    assert source.latest == {"lines": {"0": 10, "1": 40}}
    assert (source.min_offsets_behind_latest, source.max_offsets_behind_latest) == (0, 33)
    assert (source.avg_offsets_behind_latest, source.offsets_behind_latest) == (16.5, 33)


def test_s5_offsets_may_come_as_text() -> None:
    given = ours([0], [10], [12])
    given |= {name: json.dumps(given[name]) for name in ("endOffset", "latestOffset")}
    (source,) = report_of(progress(given)).sources
    assert source.max_offsets_behind_latest == 2


def test_s5_a_log_that_was_made_anew_is_not_ahead_of_itself() -> None:
    (source,) = report_of(progress(ours([0], [10], [4]))).sources
    assert source.max_offsets_behind_latest == 0


def test_s5_without_a_latest_offset_nothing_is_said_of_the_lag() -> None:
    (source,) = report_of(progress(ours([0], [10], None))).sources
    assert (source.latest, source.max_offsets_behind_latest) == (None, None)


@pytest.mark.parametrize("other", [{"endOffset": None}, {"endOffset": 7}, {"endOffset": "{"}, {}])
def test_s5_sources_of_others_are_left_out(other: dict[str, Any]) -> None:
    assert report_of(progress(other, ours([0], [1], [1]))).sources[0].end == {"lines": {"0": 1}}


def test_s5_a_report_is_one_line_and_plain_values() -> None:
    report = report_of(progress(ours([0], [10], [12])), [NOTE._replace(batch=6, rows=1), NOTE])
    assert report.line() == "words: batch 7, 12 rows in 50 ms (240 a second), 2 offsets behind, 12 written"
    assert json.loads(json.dumps(report.as_dict()))["sink"]["transactions"] == 3
    recovered = report._replace(name=None, sink=NOTE._replace(slots_recovered=2, transactions_aborted=1))
    assert recovered.line().startswith("6f1c2a34: ")
    assert recovered.line().endswith("12 written, 2 slots recovered, 1 aborted")
    assert report._replace(sink=NOTE._replace(skipped=True)).line().endswith("skipped, it was written before")
    nan = report_of(progress(processedRowsPerSecond="NaN"), [NOTE._replace(batch=6)])
    assert (nan.rows_per_second, nan.sink) == (0.0, None)  # a note of another batch says nothing of this one


def test_s5_a_report_tells_of_each_sink_that_a_batch_was_written_to() -> None:
    good, bad = NOTE._replace(sink="good"), NOTE._replace(sink="bad", rows=2)
    report = report_of(progress(), [good._replace(batch=6), good, good._replace(rows=11), bad])
    assert (report.sinks, report.sink) == ((good._replace(rows=11), bad), bad)
    assert report.line() == "words: batch 7, 12 rows in 50 ms (240 a second), good: 11 written, bad: 2 written"
    assert [each["sink"] for each in json.loads(json.dumps(report.as_dict()))["sinks"]] == ["good", "bad"]


def test_s5_notes_of_the_last_batches_are_kept_however_many_sinks_there_are(tmp_path: Path) -> None:
    def left(batch: int, *sinks: str) -> Counter[int]:
        for sink in sinks:
            leave_note(QUERY, NOTE._replace(batch=batch, sink=sink), tmp_path)
        return Counter(note.batch for note in read_notes(QUERY, tmp_path))

    names = [str(number) for number in range(60)]
    left(7, *names)
    left(7, *names)
    assert left(8, *names) == {7: 60, 8: 60}
    assert left(57, "0") == {8: 60, 57: 1}
    assert left(3, "0") == {3: 1}, "a checkpoint begins anew"


def test_s5_sinks_that_are_written_at_once_lose_no_note(tmp_path: Path) -> None:
    def leave(number: int) -> None:
        leave_note(QUERY, NOTE._replace(sink=str(number)), tmp_path)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(100)))
    assert {note.sink for note in read_notes(QUERY, tmp_path)} == {str(number) for number in range(100)}


def test_s5_a_note_is_left_only_where_somebody_listens(tmp_path: Path) -> None:
    leave_note(QUERY, NOTE, tmp_path / "nobody")
    assert not (tmp_path / "nobody").exists()
    leave_note(QUERY, NOTE, tmp_path)
    assert read_notes(QUERY, tmp_path) == [NOTE]
    leave_note("../elsewhere", NOTE, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [QUERY]
    (tmp_path / QUERY).write_text("[1, 2]")
    assert read_notes(QUERY, tmp_path) == []


class Session:
    """What a live line asks of a session."""

    def __init__(self) -> None:
        self.progress: Any = None
        self.fails = False

    @property
    def streams(self) -> Any:
        if self.fails:
            raise ConnectionError("the JVM is gone")
        return SimpleNamespace(active=[SimpleNamespace(lastProgress=self.progress)])


def test_s5_the_live_line_is_written_when_something_is_new() -> None:
    session, out = Session(), io.StringIO()
    line = LiveLine(out, lambda: session)
    LiveLine(out, lambda: None).look()
    line.look()  # no micro-batch yet
    line.end()
    assert out.getvalue() == ""
    session.progress = progress(ours([0], [10], [12]))
    line.look()
    line.look()
    session.fails = True
    line.look()
    line.end()
    assert out.getvalue() == "\r\x1b[Kwords: batch 7, 12 rows in 50 ms (240 a second), 2 offsets behind\n"


@pytest.mark.parametrize("module", ["ottla.spark.live", "ottla.spark.script"])
def test_s4_a_script_runs_below_the_live_line_as_it_does_alone(tmp_path: Path, module: str) -> None:
    (tmp_path / "helper.py").write_text("WORD = 'helped'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, helper\ndef f(): pass\nprint(__name__, f.__module__, helper.WORD, sys.argv[1:])\nsys.exit(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, str(script), "--input", "a b"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == "__main__ __main__ helped ['--input', 'a b']\n"


@pytest.fixture
def listener(caplog: pytest.LogCaptureFixture) -> Callable[[Callable[..., None]], Any]:
    """Makes a listener of a session that only keeps it."""
    pytest.importorskip("pyspark")
    from ottla.spark.progress import listen

    caplog.set_level(logging.ERROR)
    kept: list[Any] = []
    session = SimpleNamespace(streams=SimpleNamespace(addListener=kept.append))

    def make(tell: Callable[..., None]) -> Any:
        assert listen(session, tell) is kept[-1]
        return kept[-1]

    return make


def test_s5_a_listener_tells_each_micro_batch_and_survives_who_is_told(
    listener: Callable[[Callable[..., None]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []
    event = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress(ours([0], [10], [12])))), id=QUERY)
    leave_note(QUERY, NOTE)
    listener(told.append).onQueryProgress(event)
    assert [each.batch for each in told] == [7]

    def fail(report: object) -> None:
        raise ValueError("nobody can be told")

    broken = listener(fail)
    broken.onQueryProgress(event)
    assert "could not be told" in caplog.text
    leave_note(QUERY, NOTE)
    assert NOTE in read_notes(QUERY)
    broken.onQueryTerminated(event)
    assert read_notes(QUERY) == []
