"""Many worlds: one that fails stops no other; the figures are added; a campaign that was stopped goes on."""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sim.campaign import campaign
from sim.figures import figures, line, speed, table
from sim.loop import SimLoop
from sim.mutants import mutants
from sim.mutants.worlds import end_badly, stopped_while_it_shrinks
from sim.report import Asked, Failure, Known, Report, ReportError, load
from sim.running import run_all, worlds
from sim.world import Kind, Plan, World
from sim.worldfile import save
from tests.house.tree import ROOT


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds that fail leave their files there."""
    monkeypatch.chdir(tmp_path)


def _git(*words: str) -> None:
    by = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *by, *words], check=True, capture_output=True)


@pytest.fixture
def _of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is that of a commit, whatever this checkout is: git looks at `code.txt` alone."""
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    Path("code.txt").write_text("1\n")
    _git("init")
    _git("add", "code.txt")
    _git("commit", "-m", "c")


def test_the_figures_of_a_world_are_those_of_its_history() -> None:
    verdict = World(1, Kind.BROKER_PIPELINE).run()
    found = figures(verdict, 0.25)
    events = verdict.history.events
    assert found["worlds"] == 1
    assert found["virtual ms"] == round(verdict.virtual_s * 1_000) > 60_000
    assert found["processor ms"] == 250
    assert found["clients killed"] == sum(event.what == "killed" for event in events)
    assert found["brokers killed"] == sum(event.what == "kill" for event in events)
    assert found["committed"] == sum(event.what == "committed" for event in events) > 0
    assert found["acknowledged"] == sum(event.what == "acked" for event in events) > 0
    assert found["cut"] >= found["half-closed"] > 0
    assert found["rebalances"] > 0
    assert found["anomalies"] == 0


def test_the_table_has_a_row_for_each_kind_and_one_for_all() -> None:
    found = {
        Kind.PLAIN: Counter({"worlds": 1_000, "virtual ms": 7_200_000, "cut": 5}),
        Kind.GROUPS: Counter({"worlds": 2, "rebalances": 3}),
    }
    _, _, plain, groups, everything = table(found).splitlines()
    assert plain.startswith("| `plain` | 1,000 | 2.0 | 0 |")
    assert groups.startswith("| `groups` | 2 | 0.0 | 0 |")
    assert everything.startswith("| all | 1,002 | 2.0 | 0 |")
    assert "5 connections cut" in line(found[Kind.PLAIN])
    assert speed(found[Kind.PLAIN], 100.0).startswith(
        "10.0 worlds a second, 36,000 an hour; 72 virtual seconds a second;"
    )
    assert "no world" in speed({}, 0.0)


@pytest.mark.usefixtures("_of_a_commit")
def test_a_campaign_that_was_stopped_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("report.json")
    half = {"SEED": "7", "SEEDS": "4", "KIND": "plain", "REPORT": str(path), "JOBS": "1"}
    assert campaign(half) == 0
    whole = load(path)
    assert whole is not None
    assert (whole.done, whole.is_complete, whole.total["worlds"]) == (4, True, 4)
    stopped = Report(whole.asked, whole.commit)
    stopped.count(Kind.PLAIN, figures(World(7, Kind.PLAIN).run()))
    stopped.save(path)
    assert campaign({"REPORT": str(path), "JOBS": "1"}) == 0
    again = load(path)
    assert again is not None
    assert {**again.total, "processor ms": 0} == {**whole.total, "processor ms": 0}
    assert "1 of them is done already (report.json)" in capsys.readouterr().out
    assert logging.root.manager.disable == 0  # other tests of this process read what is logged
    assert campaign({"REPORT": str(path)}) == 0  # nothing is left to do: it only shows the table
    with pytest.raises(ReportError, match="is the report of another campaign: 4 worlds of kind plain from seed 7 on"):
        campaign({**half, "SEED": "8"})


def test_a_campaign_does_not_go_on_with_other_code() -> None:
    path = Path("report.json")
    Report(Asked(1, 5, None), "0123456789ab", 1).save(path)
    with pytest.raises(ReportError, match="was begun with the code of commit 0123456789ab, and this is"):
        campaign({"REPORT": str(path)})


@pytest.mark.usefixtures("_of_a_commit")
@pytest.mark.parametrize("code", ["-dirty", "unknown"])
def test_a_campaign_with_code_of_no_commit_begins_and_does_not_go_on(
    code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody could say whether the code is the same: "-dirty" is its name before more changes and after them."""
    if code == "unknown":
        monkeypatch.setenv("GIT_DIR", "nowhere")
    else:
        Path("code.txt").write_text("2\n")
    asked = {"SEED": "0", "SEEDS": "3", "KIND": "plain", "REPORT": "report.json", "JOBS": "1", "STOP": "1"}
    with mutants()["breaks-the-world"].bug, stopped_while_it_shrinks():
        assert campaign(asked) == 1
    begun = load(Path("report.json"))
    assert begun is not None
    assert begun.commit.endswith(code)
    assert not begun.is_complete
    assert "stopped by STOP: it cannot go on, because no commit has this code" in capsys.readouterr().out
    with pytest.raises(ReportError, match="nobody knows whether it is the same now: commit all changes, and begin a"):
        campaign(asked)
    Report(begun.asked, begun.commit, 3, kinds=begun.kinds).save(Path("report.json"))
    campaign(asked)  # it is complete: its table is printed again


_REPORT = {
    "version": 2,
    "commit": "c",
    "first": 1,
    "most": 1,
    "kind": None,
    "done": 0,
    "seconds": 0,
    "kinds": {},
    "failures": [],
    "known": [],
}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[]", "is no report of version 2"),
        ('{"version": 7}', "is no report of version 2"),
        (json.dumps(_REPORT | {"version": True}), "is no report of version 2"),
        ("[" * 200_000, "is no report: it is not JSON"),
        ('{"version": 2}', "is no report: it has no 'first'. Name another file, or remove it"),
        (json.dumps(_REPORT | {"kind": "odd"}), "is no report: 'kind' has to be a kind of world, not 'odd'"),
        (json.dumps(_REPORT | {"done": -5}), "is no report: 'done' has to be a whole number, 0 or more"),
        (json.dumps(_REPORT | {"seconds": "x"}), "is no report: 'seconds' has to be a number of seconds"),
        (json.dumps(_REPORT | {"kinds": []}), "is no report: 'kinds' has to be an object, in braces"),
        (json.dumps(_REPORT | {"kinds": {"plain": 5}}), "is no report: 'plain' has to be an object, in braces"),
        (
            json.dumps(_REPORT | {"kinds": {"plain": {"worlds": "x"}}}),
            "is no report: 'worlds' has to be a whole",
        ),
        (
            json.dumps(_REPORT | {"failures": [5]}),
            "is no report: 'failures' has to be a list, of which each",
        ),
        (json.dumps(_REPORT | {"failures": [{"kind": "plain"}]}), "is no report: it has no 'seed'"),
    ],
)
def test_a_file_that_is_no_report_is_told_in_a_sentence(content: str, told: str) -> None:
    path = Path("report.json")
    path.write_text(content)
    with pytest.raises(ReportError, match=told):
        load(path)


def test_a_world_that_fails_stops_no_other_and_leaves_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    with mutants()["breaks-the-world"].bug:
        ended = campaign({"SEED": "0", "SEEDS": "6", "KIND": "plain", "REPORT": "report.json", "JOBS": "2"})
    report = load(Path("report.json"))
    assert report is not None
    assert ended == 1
    assert report.done == 6
    assert report.total["anomalies"] == len(report.failures) > 0
    for failure in report.failures:
        assert failure.anomalies == ["broken-world"]
        assert failure.again == f"make sim SEED={failure.seed} KIND=plain"
        assert Path(failure.file or "").is_file()
    printed = capsys.readouterr().out
    assert all(f"plain {each.seed}: broken-world x1; again: {each.again}" in printed for each in report.failures)


def test_an_anomaly_is_told_although_its_file_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    """A campaign of a whole night met a full disk, say: the anomaly was a broken world without a history."""
    Path("sim-failures").touch()
    with mutants()["retried-with-a-new-sequence"].bug:
        ended = campaign({"SEED": "1", "SEEDS": "1", "KIND": "plain", "JOBS": "1", "REPORT": "report.json"})
    report = load(Path("report.json"))
    assert report is not None
    assert ended == 1
    (failure,) = report.failures
    assert failure.anomalies[0] == "duplicate"
    assert failure.file is None
    printed = capsys.readouterr().out
    assert "its file cannot be written: [Errno 17] File exists: 'sim-failures'" in printed
    assert "--- shrunk: " in printed


@pytest.mark.usefixtures("_of_a_commit")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_campaign_may_stop_at_the_first_world_with_an_anomaly(capsys: pytest.CaptureFixture[str], jobs: str) -> None:
    asked = {"SEED": "0", "SEEDS": "6", "KIND": "plain", "REPORT": "report.json", "JOBS": jobs, "STOP": "1"}
    with mutants()["breaks-the-world"].bug:
        assert campaign(asked) == 1
    stopped = load(Path("report.json"))
    assert stopped is not None
    assert [failure.seed for failure in stopped.failures] == [stopped.done - 1]
    assert stopped.done < 6
    assert "stopped by STOP: the same command goes on" in capsys.readouterr().out
    assert campaign(asked) == 1  # it goes on, and no later world fails: the bug is gone
    whole = load(Path("report.json"))
    assert whole is not None
    assert (whole.is_complete, whole.failures) == (True, stopped.failures)


def test_a_campaign_that_is_stopped_while_it_shrinks_has_told_everything(capsys: pytest.CaptureFixture[str]) -> None:
    with mutants()["breaks-the-world"].bug, stopped_while_it_shrinks():
        assert campaign({"SEED": "0", "SEEDS": "6", "KIND": "plain", "REPORT": "report.json", "JOBS": "1"}) == 1
    report, printed = load(Path("report.json")), capsys.readouterr()
    assert report is not None
    assert report.failures
    assert "| `plain` | 6 |" in printed.out
    assert all(f"plain {each.seed}: broken-world x1; again: {each.again}" in printed.out for each in report.failures)
    assert printed.err == "stopped\n"


_STOPPED = """
import sys, sim.__main__ as command
def stopped(*args):
    raise KeyboardInterrupt
command.one = stopped
sys.exit(command.main())
"""


def test_a_world_of_a_file_can_be_stopped() -> None:
    path = save(World(1, Kind.PLAIN, Plan(faults_s=1.0)).run())
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WORLD": str(path)}
    command = [sys.executable, "-c", _STOPPED]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.stderr, ended.returncode) == ("stopped\n", 130)


def test_no_world_is_kept_when_the_next_one_begins() -> None:
    """Each is one big cycle: kept until Python thinks of it, thousands would take a gigabyte."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        for summary in run_all(worlds(1, 2, Kind.PLAIN), 1, None):
            assert not summary.names
            assert not [each for each in gc.get_objects() if isinstance(each, World | SimLoop)]
    finally:
        if was_on:
            gc.enable()


def test_a_world_that_dies_or_never_ends_stops_no_other() -> None:
    with end_badly():
        found = list(run_all(worlds(0, 6, Kind.PLAIN), 2, None))
    assert [each.seed for each in found] == [0, 1, 2, 3, 4, 5]
    assert [each.names for each in found] == [(), ("died",), ("broken-world",), ("never-ends",), (), ()]
    assert "the checkers are broken" in found[2].text
    assert "while True" in found[3].text


def test_failures_and_known_anomalies_are_kept_in_the_report() -> None:
    path = Path("report.json")
    failure = Failure("plain", 3, ["lost-write"], "make sim SEED=3 KIND=plain", "sim-failures/plain-3.json")
    known = Known("plain", 3, ["late", "late"])
    report = Report(Asked(3, None, Kind.PLAIN), "c", 1, 1.5, {Kind.PLAIN: Counter(worlds=1)}, [failure], [known])
    report.save(path)
    assert load(path) == report


def test_worlds_with_known_anomalies_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """So that who reads the figures can look whether they are what they are taken for."""
    known = Known("plain", 3, ["late-marker", "late-marker", "other"])
    done = Report(Asked(3, 1, Kind.PLAIN), "c", 1, 1.5, {Kind.PLAIN: Counter(worlds=1)}, known=[known])
    done.save(Path("report.json"))
    assert campaign({"REPORT": "report.json"}) == 0
    assert "1 world with anomalies of known causes (sim/known.py):\n  plain 3: late-marker x2, other x1\n" in (
        capsys.readouterr().out
    )


def test_the_command_takes_no_arguments() -> None:
    """It is told by the environment; a word behind it was passed over, and hundreds of worlds ran."""
    for argument, status in (("SEED=93", 2), ("--help", 0)):
        ended = subprocess.run(
            [sys.executable, "-m", "sim", argument], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
        )
        assert ended.returncode == status
        assert "SEED (the first seed;" in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ("SEED=x", "SEED has to be a whole number, such as SEED=93, not 'x'"),
        ("SEED=-1", "SEED has to be a whole number, 0 or more, not '-1'"),
        ("HOURS=1e-9 JOBS=1", "no world was run: this was over before the first one ended. Give more HOURS, or SEEDS"),
        ("SEEDS=0", "SEEDS has to be a whole number above 0, not '0'"),
        ("SEEDS=1.5", "SEEDS has to be a whole number, such as SEEDS=93, not '1.5'"),
        ("JOBS=-1", "JOBS has to be a whole number above 0, not '-1'"),
        ("JOBS=1000000", f"JOBS has to be {8 * (os.cpu_count() or 1)} at most, 8 for each core of this machine"),
        ("STOP=now", "STOP has to be 1 (yes) or 0 (no), not 'now'"),
        ("WORLD=w.json STOP=1", "WORLD runs the one world of its file: leave out STOP, or WORLD"),
        ("HOURS=inf", "HOURS has to be a number above 0, not 'inf'"),
        ("KIND=odd", "KIND is one of plain, transactions, "),
        ("WORLD=nowhere.json", "there is no world file nowhere.json: a failing world leaves one in sim-failures/"),
        ("WORLD=tests", "the world file tests cannot be read: Is a directory"),
        ("WORLD=w.json SEED=1 KIND=plain", "WORLD runs the one world of its file: leave out SEED and KIND, or WORLD"),
        ("WORLD=w.json REPORT=r.json", "WORLD runs the one world of its file: leave out REPORT, or WORLD"),
        ("REPORT=tests", "the report tests cannot be read: Is a directory"),
        ("REPORT=nowhere/r.json", "the report nowhere/r.json cannot be written: No such file or directory"),
        ("REPORT=README.md", "README.md is no report: it is not JSON. Name another file, or remove it"),
    ],
)
def test_the_command_says_what_it_was_asked_wrongly(variables: str, told: str) -> None:
    environment = {**os.environ, **dict(variable.split("=") for variable in variables.split())}
    ended = subprocess.run(
        [sys.executable, "-m", "sim"], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(told)
    assert ended.stderr.count("\n") == 1


def test_a_campaign_that_is_terminated_leaves_its_report_and_no_process(tmp_path: Path) -> None:
    environment = {**os.environ, "SEED": "1", "SEEDS": "100000", "JOBS": "2", "REPORT": str(tmp_path / "report.json")}
    command = [sys.executable, "-m", "sim"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as run:
        assert run.stdout is not None
        assert "2 processes" in run.stdout.readline()
        run.terminate()
        _, errors = run.communicate()  # ends when the last of its processes has closed its end
    assert (errors, run.returncode) == ("stopped\n", 143)
    assert load(tmp_path / "report.json") is not None


_KILLED = """
import os, signal
from sim.running import _pool
print(_pool(1).submit(os.getpid).result(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_campaign_that_is_killed_leaves_no_process() -> None:
    """Its workers would wait for worlds for ever, each with its memory."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _KILLED], cwd=ROOT, stdout=pipe, text=True) as run:
        said, _ = run.communicate(timeout=60)  # ends when the worker, too, has closed its end
    assert int(said) != run.pid
    assert run.returncode == -9
