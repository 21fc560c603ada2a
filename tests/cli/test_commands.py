"""Every command does what its help says, prints JSON where it prints data, and fails with one clear sentence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from ottla import Consumer, Producer
from ottla.cli.main import main
from ottla.testing import Broker
from tests.cli.conftest import Ottla
from tests.cli.processes import line_of, ottla_process

COMMANDS = [
    (),
    ("serve",),
    ("topics",),
    *(("topics", each) for each in ("list", "create", "describe", "delete", "alter")),
    ("produce",),
    ("consume",),
    ("groups",),
    *(("groups", each) for each in ("list", "describe", "offsets", "watch", "reset")),
    *(("groups", each) for each in ("delete-offsets", "remove-members", "delete")),
    ("assign",),
    ("transactions",),
    *(("transactions", each) for each in ("list", "describe", "find-hanging", "who-holds", "watch", "abort", "commit")),
    ("users",),
    *(("users", each) for each in ("list", "set", "delete")),
    ("certs",),
    ("dump-log",),
    ("run",),
    ("demo",),
    ("bench",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    assert f"ottla {' '.join(command)}".strip() in " ".join(capfd.readouterr().out.split("Example:")[1].split())


def test_a_wrong_option_is_exit_code_2() -> None:
    assert main(["topics", "list", "--wrong"]) == 2


def test_topics_are_created_described_altered_and_deleted(ottla: Ottla) -> None:
    assert ottla("topics", "create", "cli-a", "-p", "2", "--set", "retention.ms=86400000").code == 0
    rows = ottla("topics", "describe", "cli-a", "--json").data
    assert [(row["partition"], row["end_offset"]) for row in rows] == [(0, 0), (1, 0)]
    assert rows[0]["settings"] == {"retention.ms": "86400000"}
    changes = ("-p", "3", "--unset", "retention.ms", "--set", "cleanup.policy=compact")
    assert ottla("topics", "alter", "cli-a", *changes).code == 0
    assert {"topic": "cli-a", "partitions": 3} in ottla("topics", "list", "--json").data
    assert ottla("topics", "describe", "cli-a", "--json").data[0]["settings"] == {"cleanup.policy": "compact"}
    assert ottla("topics", "delete", "cli-a").code == 0
    gone = ottla("topics", "describe", "cli-a")
    assert gone.code == 1
    assert gone.err == (
        "ottla: UNKNOWN_TOPIC_OR_PARTITION: topic cli-a; `ottla topics list` shows which there are, "
        "`ottla topics create` makes one\n"
    )


def test_records_go_in_and_out_in_every_form(ottla: Ottla, tmp_path: Path) -> None:
    ottla("topics", "create", "cli-b")
    (tmp_path / "lines").write_text("k1=v1\nk2=v=2\n")
    assert ottla("produce", "cli-b", "-f", str(tmp_path / "lines"), "-k", "=").err == "2 records written to cli-b.\n"
    (tmp_path / "json").write_text('{"key": "k3", "value": {"n": 3}, "headers": {"h": "x"}}\n{"value": null}\n')
    transactional = ("--json", "--transactional-id", "cli-b-tx")
    assert ottla("produce", "cli-b", "-f", str(tmp_path / "json"), *transactional).code == 0
    said = ottla("consume", "cli-b", "--until-end", "--json")
    records = [json.loads(line) for line in said.out.splitlines()]
    assert [(r["offset"], r["key"], r["value"]) for r in records] == [
        (0, "k1", "v1"),
        (1, "k2", "v=2"),
        (2, "k3", '{"n": 3}'),
        (3, None, None),
    ]
    assert records[2]["headers"] == [["h", "x"]]
    assert ottla("consume", "cli-b:0", "--from-beginning", "--max", "1").out == "v1\n"
    (listed,) = ottla("transactions", "list", "--pattern", "cli-b-.*", "--json").data
    assert (listed["transactional_id"], listed["state"]) == ("cli-b-tx", "CompleteCommit")
    assert ottla("transactions", "describe", "cli-b-tx", "--json").data[0]["state"] == "CompleteCommit"


@pytest.mark.parametrize(
    "protocol", [{"group.protocol": "consumer"}, {"partition.assignment.strategy": "cooperative-sticky"}], ids=str
)
def test_a_member_that_gets_its_partitions_later_reads_them_before_it_ends(
    protocol: dict[str, str], tmp_path: Path, ottla: Ottla
) -> None:
    """Its first assignment is empty, because another member must give up a partition first."""
    with Broker(data_dir=tmp_path / "data") as broker:
        bootstrap = ("--bootstrap", broker.bootstrap_servers)
        assert ottla("topics", "create", "x", "-p", "2", *bootstrap).code == 0
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            for partition in (0, 1):
                producer.send("x", b"record", partition=partition)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **protocol}
        with Consumer({**settings, "enable.auto.commit": False}) as other:
            other.subscribe(["x"], on_assigned=other.pause)
            while len(other.assignment()) < 2:
                other.poll(0.1)
            more = [each for key, value in protocol.items() for each in ("-o", f"{key}={value}")]
            with ottla_process("consume", "x", "--group", "g", "--until-end", *more, *bootstrap) as consume:
                while consume.poll() is None:
                    assert not other.poll(0.1)
                out, err = consume.communicate()
                assert (out, err, consume.returncode) == ("record\n", "", 0)


def test_records_come_from_a_pipe_with_a_name(ottla: Ottla, tmp_path: Path) -> None:
    ottla("topics", "create", "cli-fifo")
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=(tmp_path / "pipe").write_text, args=("a\nb\n",))
    writer.start()
    said = ottla("produce", "cli-fifo", "-f", str(tmp_path / "pipe"))
    if said.code:
        (tmp_path / "pipe").open().close()  # the writer waits for a reader
    writer.join()
    assert said.err == "2 records written to cli-fifo.\n"


def test_t14_an_open_transaction_is_found_and_aborted(ottla: Ottla, ottla_broker: Broker) -> None:
    from ottla import Producer

    ottla("topics", "create", "cli-d")
    settings = {"bootstrap.servers": ottla_broker.bootstrap_servers, "transactional.id": "cli-d-tx"}
    with Producer(settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("cli-d", b"x").result(10)
        ongoing = ("transactions", "list", "--state", "Ongoing", "--pattern", "cli-d-tx", "--json")  # no others
        found = ottla(*ongoing).data
        assert [row["transactional_id"] for row in found] == ["cli-d-tx"]
        assert ottla("transactions", "abort", "cli-d-tx", "--yes").code == 0
        assert ottla(*ongoing).data == []
        with pytest.raises(Exception, match=r"fenced|FENCED|EPOCH"):
            producer.commit_transaction()


def test_t14_a_transaction_that_is_not_open_is_not_aborted_and_its_producer_goes_on(
    ottla: Ottla, ottla_broker: Broker
) -> None:
    from ottla import Producer

    ottla("topics", "create", "cli-ended")
    settings = {"bootstrap.servers": ottla_broker.bootstrap_servers, "transactional.id": "cli-ended-tx"}
    with Producer(settings) as producer:
        producer.init_transactions()
        for _time in range(2):
            with producer.transaction():
                producer.send("cli-ended", b"x")
            said = ottla("transactions", "abort", "cli-ended-tx", "--yes")
            assert said.code == 1
            assert "cli-ended-tx has no open transaction, it is CompleteCommit; nothing was aborted" in said.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("topics", "alter", "x"), "nothing to alter; give --partitions"),
        (("consume", "x", "-o", "grup.id=1"), "did you mean group.id?"),
        (("consume", "x", "-o", "no-equals-sign"), "is not KEY=VALUE; write for example linger.ms=5"),
        (("consume", "x:y"), "is not TOPIC:PARTITION"),
        (("produce", "x", "--file", "/nowhere"), "does not exist; leave it away to read standard input"),
        (("consume", "x:0", "--group", "g"), "x:0: a group shares out whole topics"),
        (("bench", "-o", "no.such.key=1"), "Unknown producer configuration no.such.key"),
        (("produce", "x", "--file", "/tmp"), "--file /tmp is a folder; name a file with one record a line"),
        (("run", "/nowhere.py"), "does not exist; name a Python file"),
        (("run", "/"), "/ is not a file; name a Python file"),
        (("dump-log", "/nowhere"), "does not exist; name a file such as"),
        (("demo", "--input", "/nowhere"), "does not exist; name a text file or a folder"),
        (("demo", "--script", "/nowhere.py"), "/nowhere.py does not exist; name a Python file"),
        (("topics", "alter", "cli-nowhere", "-p", "2"), "partition; `ottla topics list` shows which there are"),
    ],
)
def test_a_fault_is_one_clear_sentence(ottla: Ottla, arguments: tuple[str, ...], sentence: str) -> None:
    said = ottla(*arguments)
    assert said.code == 1
    assert sentence in said.err
    assert "Traceback" not in said.err


def test_the_output_is_json_also_where_its_characters_cannot_be_printed(ottla_broker: Broker, ottla: Ottla) -> None:
    ottla("topics", "create", "cli-utf8")
    (produced, _err, _code) = _run(ottla_broker, "produce", "cli-utf8", given="zażółć\n")
    assert produced == ""
    for encoding in ("utf-8", "ascii"):
        said, _err, code = _run(ottla_broker, "consume", "cli-utf8", "-e", "--json", encoding=encoding)
        assert (json.loads(said)["value"], code) == ("zażółć", 0)


@pytest.mark.parametrize("command", [("topics", "list"), ("consume", "cli-pipe", "-e"), ("--help",)], ids=" ".join)
def test_a_reader_that_goes_away_is_no_fault(ottla_broker: Broker, ottla: Ottla, command: tuple[str, ...]) -> None:
    ottla("topics", "create", "cli-pipe")
    _run(ottla_broker, "produce", "cli-pipe", given="a\n")
    with ottla_process(*command, environment={"OTTLA_BOOTSTRAP": ottla_broker.bootstrap_servers}) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(60) == 1


def test_everything_after_the_script_is_the_scripts_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "arguments.py"
    script.write_text("import sys; print(sys.argv[1:])\n")
    own = ["--help", "--master", "x", "--conf", "a=b", "--", "-z"]
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "run", "--master", "local[1]", str(script), *own],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{own}\n"
    assert main(["run", "--mastr", "x", str(script)]) == 2
    assert "--mastr" in capfd.readouterr().err


def _run(broker: Broker, *arguments: str, given: str = "", encoding: str = "utf-8") -> tuple[str, str, int]:
    """Both outputs and the exit code of `ottla ARGUMENTS…`, fed with `given`."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        input=given,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "OTTLA_BOOTSTRAP": broker.bootstrap_servers, "PYTHONIOENCODING": encoding},
        check=False,
    )
    return done.stdout, done.stderr, done.returncode


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_serve_is_ready_soon_and_ends_cleanly(tmp_path: Path, signal_number: signal.Signals) -> None:
    command = [sys.executable, "-m", "ottla", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert line_of(process.stdout).startswith("ottla ready 127.0.0.1:")
    process.send_signal(signal_number)
    _out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")


def test_serve_imports_nothing_slow(tmp_path: Path) -> None:
    """The budget of half a second is kept by what is not imported; a test that measures time would be a bad one."""
    slow = ["pyarrow", "typer", "rich", "hypothesis", "kio", "pyspark", "ottla.client"]
    code = (
        "import sys, os, threading, signal\n"
        "from ottla.cli.main import main\n"
        "class Out:\n"
        "    def write(self, text):\n"
        "        if 'ottla ready' in text: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    def flush(self): pass\n"
        "stdout, sys.stdout = sys.stdout, Out()\n"
        f"code = main(['serve', '--port', '0', '--data-dir', {str(tmp_path / 'data')!r}])\n"
        f"print(code, [name for name in {slow!r} if name in sys.modules], file=stdout)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0 []\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_consume_cleanly(ottla_broker: Broker, ottla: Ottla, number: signal.Signals) -> None:
    ottla("topics", "create", f"cli-{number.name}")
    _run(ottla_broker, "produce", f"cli-{number.name}", given="first\n")
    environment = {"OTTLA_BOOTSTRAP": ottla_broker.bootstrap_servers}
    with ottla_process("consume", f"cli-{number.name}", "--from-beginning", environment=environment) as process:
        assert line_of(process.stdout) == "first\n"
        process.send_signal(number)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 128 + number


def test_a_record_of_another_form_is_refused(ottla: Ottla, tmp_path: Path) -> None:
    ottla("topics", "create", "cli-json")
    for line, why in (
        ('{"valu": "a"}', "unknown field 'valu'"),
        ('{"value": "a", "partition": "x"}', "partition must be a whole number"),
        ('{"value": "a", "partition": 1.5}', "partition must be a whole number"),
        (r'{"value": "\ud800"}', "line 1 is not an object such as"),
        (r'{"value": "a", "headers": {"\ud800": "x"}}', "line 1 is not an object such as"),
    ):
        file = tmp_path / "lines"
        file.write_text(line)
        refused = ottla("produce", "cli-json", "--json", "--file", str(file))
        assert refused.code == 1
        assert why in refused.err


def test_what_is_not_there_is_not_made_by_a_look_at_it(ottla: Ottla) -> None:
    ottla("topics", "create", "cli-there")
    for command in (
        ("consume", "cli-nowhere", "--group", "cli-g", "--until-end"),
        ("consume", "cli-there:9", "--until-end"),
        ("transactions", "abort", "cli-nobody"),
        ("transactions", "list", "--state", "Bogus"),
    ):
        assert ottla(*command).code == 1, command
    assert "cli-nowhere" not in {row["topic"] for row in ottla("topics", "list", "--json").data}
    assert ottla("transactions", "list", "--pattern", "cli-nobody", "--json").data == []
