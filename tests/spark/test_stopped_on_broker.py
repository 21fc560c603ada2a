"""SPEC S2: a query is stopped while tasks are at work. Nobody has a message of theirs, and what is open is aborted."""

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla import Admin
from ottla.spark.ids import slot_pattern
from ottla.spark.ledger_io import LedgerKafka
from ottla.spark.link import link
from ottla.spark.requests import Fence, FindOpen
from ottla.spark.run import Launch, launch, with_forks
from tests.signals import as_at_a_terminal
from tests.spark.brokers import on_either_broker
from tests.spark.kafka_model import one_request
from tests.spark.sessions import kill_session
from tests.spark.sink_world import SinkWorld
from tests.spark.words import expected_words, make_topic, send_lines, words_in

pytestmark = on_either_broker
WORDCOUNT = Path(__file__).resolve().parents[2] / "examples" / "wordcount.py"


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a Spark context, as Spark names it to Python processes."""
    return _in_context(monkeypatch, tmp_path, "context")


def _in_context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},{tmp_path}")
    return folder


def test_s2_no_task_has_ended_and_all_that_they_had_open_is_aborted(world: SinkWorld, context: Path) -> None:
    world.batch(world.driver(), 0, "a b", "c")
    world.committer().abort([None, None])
    assert world.open_transactions() == []
    world.committer().commit(world.batch(world.driver(), 0, "a b", "c"), 0)
    assert world.output() == Counter("abc")
    (note,) = context.iterdir()
    assert note.stat().st_size < 1000


def test_s2_what_was_found_open_is_aborted_and_what_the_next_driver_has_begun_since_is_not(world: SinkWorld) -> None:
    driver = world.driver()
    world.batch(driver, 0, "a b")
    kafka = link(driver.options.client)
    ledger = LedgerKafka(kafka, world.sink, driver.options.ledger_topic, -1, 60_000)
    found = kafka.run(ledger.drive(one_request(FindOpen(slot_pattern(world.sink)))))
    messages = world.batch(world.driver(), 0, "a b")
    kafka.run(ledger.drive(one_request(Fence(tuple(found)))))
    world.committer().commit(messages, 0)
    assert world.output() == Counter("ab")


def test_s2_a_batch_write_aborts_by_its_own_claim(world: SinkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    driver = world.driver()
    world.batch(driver, 0, "a b", "c")
    driver.abort([None, None])  # Spark pickles the writer of a batch write, with its claim
    assert world.open_transactions() == []


def test_s2_the_driver_of_another_context_is_not_touched(
    world: SinkWorld, context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.batch(world.driver(), 0, "a b", "c")
    _in_context(monkeypatch, tmp_path, "other")
    messages = world.batch(world.driver(), 0, "a b", "c")
    _in_context(monkeypatch, tmp_path, context.name)
    world.committer().abort([None, None])
    world.committer().commit(messages, 0)
    assert world.output() == Counter("abc")


@pytest.mark.parametrize("note", [None, "", "{", '["sink"]'])
def test_s2_without_a_note_of_the_claim_nothing_is_aborted_and_that_is_told(
    world: SinkWorld, context: Path, note: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    messages = world.batch(world.driver(), 0, "a b")
    (path,) = context.iterdir()
    path.unlink()
    if note is not None:
        path.write_text(note)
    world.committer().abort([None])
    assert "stays so until the next start" in caplog.text
    world.committer().commit(messages, 0)
    assert world.output() == Counter("ab")


def test_s2_a_claim_that_cannot_be_noted_leaves_none_of_an_earlier_one(
    world: SinkWorld, context: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world.driver()
    (note,) = context.iterdir()
    note.with_suffix(f".{os.getpid()}").mkdir()  # in the way of the next one
    messages = world.batch(world.driver(), 0, "a b")
    world.committer().abort([None])
    assert "stays so until the next start" in caplog.text
    world.committer().commit(messages, 0)
    assert world.output() == Counter("ab")


def test_s2_whole_batches_and_at_least_once_have_nothing_to_abort(world: SinkWorld, context: Path) -> None:
    for options in ({"atomicity": "batch"}, {"semantics": "at-least-once"}):
        world.committer(**options).abort([None, None])
    assert list(context.iterdir()) == []


@pytest.mark.parametrize("listens", [False, True])
def test_s2_an_abort_waits_for_brokers_that_are_away_as_long_as_it_may_and_no_longer(
    world: SinkWorld, caplog: pytest.LogCaptureFixture, listens: bool
) -> None:
    messages = world.batch(world.driver(), 0, "a b", "c")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        committer = world.committer(**{"kafka.bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"})
        committer.abort_within_s = 0.1
        committer.abort(messages)
        link(committer.options.client).shut()
    assert "stay open for now" in caplog.text
    assert "have not answered within 0.1 s" in caplog.text
    assert len(world.open_transactions()) == 2
    world.committer().commit(messages, 0)
    assert world.output() == Counter("abc")


_TASK = """
import os, signal, sys
from pathlib import Path
import pyarrow as pa
from ottla.spark.ledger import BatchKey
from tests.spark.sink_world import QUERY, SinkWorld
driver = SinkWorld(*sys.argv[2:4], Path(sys.argv[4])).driver()
def rows():
    yield pa.RecordBatch.from_pydict({name: pa.array([b"a"], pa.binary()) for name in ("key", "value")})
    os.kill(os.getpid(), int(sys.argv[1]))
    os.kill(os.getpid(), int(sys.argv[5]))  # Spark's daemon has heard the first one, too, and hands on another
driver.write(BatchKey(QUERY, 0), 0, rows())
"""


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGHUP), (signal.SIGHUP, signal.SIGTERM)])
def test_s2_a_worker_that_is_ended_in_a_task_aborts_what_the_task_has_open(
    world: SinkWorld, numbers: tuple[signal.Signals, signal.Signals]
) -> None:
    first, second = (str(int(number)) for number in numbers)
    given = [first, world.bootstrap, world.topic, str(world.checkpoint), second]
    command = [sys.executable, "-c", _TASK, *given]
    assert subprocess.run(command, preexec_fn=as_at_a_terminal, check=False).returncode == 128 + numbers[0]
    assert world.open_transactions() == []


_WRITE = """
import sys
from pyspark.sql import SparkSession
rows = SparkSession.builder.getOrCreate().range(0, 40, 1, 2).selectExpr("CAST(id AS STRING) AS value")
writer = rows.write.format("ottla").mode("append").option("kafka.bootstrap.servers", sys.argv[1])
writer.option("topic", sys.argv[2]).option("sink.id", sys.argv[2]).save()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_s2_a_batch_write_that_is_cut_off_leaves_no_transaction_of_its_tasks_open(
    bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path, java: str, number: signal.Signals
) -> None:
    target, script = make_topic(bootstrap, fresh_name("numbers")), tmp_path / "write.py"
    script.write_text(_WRITE)
    launched = launch(script, [bootstrap, target], master="local[2]", conf=[], environ=os.environ)
    _cut_off(launched, "sink.mid-write", tmp_path, bootstrap, target, number)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("all_of_it", [False, True])
def test_s2_a_script_that_is_stopped_leaves_no_transaction_of_its_tasks_open(
    bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path, java: str, all_of_it: bool
) -> None:
    """Also where the signal goes to its whole process group, as `timeout` and shells send it."""
    source, target = make_topic(bootstrap, fresh_name("lines")), make_topic(bootstrap, fresh_name("words"))
    send_lines(bootstrap, source)
    arguments = ["--bootstrap", bootstrap, "--input", source, "--output", target]
    arguments += ["--checkpoint", str(tmp_path / target), "--max-offsets-per-trigger", "300", "--available-now"]
    launched = launch(WORDCOUNT, arguments, master="local[2]", conf=[], environ=os.environ)
    launched = Launch(launched.argv, with_forks(launched.env, os.environ))
    cut_off = partial(_cut_off, launched, "sink.mid-write:1", tmp_path, bootstrap, target, signal.SIGTERM)
    argv, env = cut_off(all_of_it=all_of_it)
    assert subprocess.run(argv, env=env, check=False).returncode == 0
    assert words_in(bootstrap, target) == expected_words()


def _cut_off(
    launched: Launch,
    point: str,
    folder: Path,
    bootstrap: str,
    target: str,
    number: signal.Signals,
    *,
    all_of_it: bool = False,
) -> Launch:
    """Start it, and end it by a signal while a task is at work; with `all_of_it` one to its process group."""
    faults = folder / "faults"
    faults.mkdir()
    argv, env = launched
    env |= {"OTTLA_FAULT": f"{point}=pause", "OTTLA_FAULT_DIR": str(faults)}
    script = subprocess.Popen(argv, env=env, start_new_session=True, preexec_fn=as_at_a_terminal)
    try:
        while not (faults / f"{point}-pause").exists():
            assert script.poll() is None
        while not _states(bootstrap, target)["Ongoing"]:
            assert script.poll() is None
        (os.killpg if all_of_it else os.kill)(script.pid, number)
        assert script.wait() in {128 + number, -number}
    finally:
        kill_session(script.pid)
    assert _states(bootstrap, target)["Ongoing"] == 0
    return Launch(argv, env)


def _states(bootstrap: str, sink: str) -> Counter[str]:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        return Counter(str(each.state) for each in admin.list_transactions() if sink in each.transactional_id)
