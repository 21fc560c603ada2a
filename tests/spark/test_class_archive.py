"""The archive of Java's classes: made by a job, found whole or not at all, and given to a local master."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.spark.class_archive import OPTIONS_KEY, PrepareError, archive, make, options
from ottla.spark.run import launch


@pytest.fixture
def java(tmp_path: Path) -> str:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "cache" / "spark-home-0123"
    home.mkdir(parents=True)
    return home


class Job:
    """In place of the job that Java learns from: a program that gets Java's options as its first argument."""

    def __init__(self, program: str) -> None:
        self._program = program

    def __call__(self, java_options: str) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, "-c", self._program, java_options], {}


_WRITES = Job("import sys; open(sys.argv[1].partition('=')[2], 'w').write('classes')")


def test_an_archive_is_given_to_java_once_it_is_made(home: Path, java: str, tmp_path: Path) -> None:
    assert options(home, java) is None
    path, size_bytes = make(home, java, _WRITES, tmp_path / "log")
    assert (path.read_text(), size_bytes) == ("classes", 7)
    assert shlex.split(str(options(home, java))) == [f"-XX:SharedArchiveFile={path}", "-Xlog:cds*=off"]
    assert set(home.parent.iterdir()) == {home, path}


def test_an_archive_that_is_not_whole_is_none(home: Path, java: str, tmp_path: Path) -> None:
    """Java would crash."""
    path, _ = make(home, java, _WRITES, tmp_path / "log")
    path.write_text("half")
    assert options(home, java) is None


def test_another_java_has_another_archive_and_each_has_one(home: Path, java: str, tmp_path: Path) -> None:
    first, _ = make(home, java, _WRITES, tmp_path / "log")
    Path(java).parents[1].joinpath("release").write_text("JAVA_VERSION=25")
    assert options(home, java) is None
    second, _ = make(home, java, _WRITES, tmp_path / "log")
    longer = Job("import sys; open(sys.argv[1].partition('=')[2], 'w').write('more classes')")
    third, _ = make(home, java, longer, tmp_path / "log")
    assert (first.exists(), second.exists(), third.exists()) == (True, False, True)
    assert archive(home, java).found() == third


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; print('no broker'); sys.exit(3)", r"has failed \(exit code 3\):\nno broker"),
        ("print('directories in the class path')", "has written no archive. Its last words:\ndirectories in"),
    ],
)
def test_a_job_that_leaves_no_archive_is_told(home: Path, java: str, tmp_path: Path, program: str, said: str) -> None:
    kept, _ = make(home, java, _WRITES, tmp_path / "log")
    with pytest.raises(PrepareError, match=said):
        make(home, java, Job(program), tmp_path / "log")
    assert archive(home, java).found() == kept, "the one of before stays"
    assert len(list(home.parent.iterdir())) == 2, "and nothing else"


def test_a_path_with_a_space_stays_one_option(java: str, tmp_path: Path) -> None:
    home = tmp_path / "the cache" / "spark-home-0123"
    home.mkdir(parents=True)
    job = Job("import shlex, sys; open(shlex.split(sys.argv[1])[0].partition('=')[2], 'w').write('classes')")
    path, _ = make(home, java, job, tmp_path / "log")
    assert shlex.split(str(options(home, java)))[0] == f"-XX:SharedArchiveFile={path}"


def test_a_local_master_gets_it_unless_the_user_sets_java_s_options(java: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    environ = {"PATH": str(Path(java).parent), "HOME": str(tmp_path / "user")}

    def asked(master: str = "local[1]", *conf: str) -> str | None:
        launched = launch(Path("x.py"), [], master=master, conf=conf, environ=environ)
        words = shlex.split(launched.env.get("PYSPARK_SUBMIT_ARGS", "")) + launched.argv
        found = [each for each in words if each.startswith(OPTIONS_KEY)]
        return found[-1].partition("=")[2] if found else None

    assert asked() is None
    home = Path(launch(Path("x.py"), [], master="local[1]", conf=[], environ=environ).env["SPARK_HOME"])
    path, _ = make(home, java, _WRITES, tmp_path / "log")
    given = asked()
    assert given is not None
    assert str(path) in given
    assert asked("local[1]", f"{OPTIONS_KEY}=-Xmx1g") == "-Xmx1g"
    assert asked("spark://host:7077") is None


def test_prepare_says_what_is_in_its_way(
    java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert main(["prepare"]) == 1
    assert "there is no place for the archive" in capsys.readouterr().err
    monkeypatch.delenv("SPARK_HOME")
    for name, value in (("XDG_CACHE_HOME", str(tmp_path)), ("SPARK_CONF_DIR", str(Path(java).parent))):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(Path(java).parent), prepend=os.pathsep)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(["prepare"]) == 1
    assert "Java keeps no classes while" in capsys.readouterr().err
