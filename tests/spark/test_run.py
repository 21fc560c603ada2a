"""How `ottla run` starts a script."""

import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.base.errors import ConfigError
from ottla.spark.fork_client import SERVER_VARIABLE
from ottla.spark.home import home_without_zip
from ottla.spark.run import launch

SCRIPT = Path("pipeline.py")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    return {"PATH": str(java.parent)}


def test_s4_a_local_master_runs_the_script_with_this_python(environ: dict[str, str]) -> None:
    argv, env = launch(SCRIPT, ["--input", "a b"], master=None, conf=["spark.x=y z"], environ=environ)
    assert argv == [sys.executable, "-P", "-m", "ottla.spark.script", "pipeline.py", "--input", "a b"]
    assert env["PYSPARK_PYTHON"] == sys.executable
    options = shlex.split(env["PYSPARK_SUBMIT_ARGS"])
    assert options[:2] == ["--master", "local[*]"]
    assert options[-1] == "pyspark-shell"
    assert {"spark.x=y z", "spark.python.unix.domain.socket.enabled=true"} <= set(options)
    assert "spark.sql.execution.arrow.maxRecordsPerBatch=5000" in options
    assert any("FileSystemBasedCheckpointFileManager" in option for option in options)


def test_s4_a_cluster_gets_the_same_script_by_spark_submit(environ: dict[str, str]) -> None:
    pytest.importorskip("pyspark")
    argv, env = launch(SCRIPT, ["x"], master="spark://host:7077", conf=[], environ=environ)
    assert argv[0].endswith("bin/spark-submit")
    assert argv[1:3] == ["--master", "spark://host:7077"]
    assert argv[-2:] == ["pipeline.py", "x"]
    assert not any("FileSystemBased" in option for option in argv)
    assert "PYSPARK_SUBMIT_ARGS" not in env


def test_s4_with_a_live_line_the_script_runs_below_it_on_a_local_master_only(environ: dict[str, str]) -> None:
    argv, _ = launch(SCRIPT, ["x"], master="local[1]", conf=[], environ=environ, live=True)
    assert argv == [sys.executable, "-P", "-m", "ottla.spark.live", "pipeline.py", "x"]
    pytest.importorskip("pyspark")
    argv, _ = launch(SCRIPT, ["x"], master="spark://host:7077", conf=[], environ=environ, live=True)
    assert argv[-2:] == ["pipeline.py", "x"]


def test_s4_what_the_user_sets_wins(environ: dict[str, str]) -> None:
    own = "spark.python.unix.domain.socket.enabled=false"
    _, env = launch(SCRIPT, [], master="local[1]", conf=[own], environ={**environ, "PYSPARK_PYTHON": "python9"})
    assert own in env["PYSPARK_SUBMIT_ARGS"]
    assert "socket.enabled=true" not in env["PYSPARK_SUBMIT_ARGS"]
    assert env["PYSPARK_PYTHON"] == "python9"


def test_s4_what_spark_s_own_file_sets_is_not_overridden(environ: dict[str, str], tmp_path: Path) -> None:
    def options(*conf: str, **more: str) -> list[str]:
        launched = launch(SCRIPT, [], master="local[1]", conf=conf, environ={**environ, **more})
        return shlex.split(launched.env["PYSPARK_SUBMIT_ARGS"])

    conf, home = tmp_path / "confdir", tmp_path / "home"
    for folder in (conf, home / "conf"):
        folder.mkdir(parents=True)
    manager, push = "spark.sql.streaming.checkpointFileManagerClass", "spark.sql.python.filterPushdown.enabled"
    text = f"# of an object store\n{manager}\torg.example.Manager\n\n{push}=false\nspark.pyspark.python   python9\n"
    (conf / "spark-defaults.conf").write_text(text)
    (home / "conf" / "spark-defaults.conf").write_text(f"  {push} :  false\n")
    given = " ".join(options(SPARK_CONF_DIR=str(conf), SPARK_HOME=str(home)))
    assert manager not in given
    assert push not in given
    assert "spark.python.daemon.module" not in given, "the workers' Python is another one"
    assert "spark.python.unix.domain.socket.enabled=true" in given
    given = " ".join(options(SPARK_HOME=str(home)))
    assert f"{manager}=" in given
    assert push not in given
    assert f"{push}=true" in options(f"{push}=true", SPARK_HOME=str(home))
    assert f"{push}=true" in options(SPARK_CONF_DIR=str(tmp_path))
    named = f"--properties-file {home}/conf/spark-defaults.conf pyspark-shell"
    given = " ".join(options(SPARK_CONF_DIR=str(conf), PYSPARK_SUBMIT_ARGS=named))
    assert f"{manager}=" in given
    assert push not in given


def test_s4_a_master_that_a_setting_names_is_the_master(environ: dict[str, str]) -> None:
    """Spark takes `--master` before the setting, so that of nobody must not be given."""
    pytest.importorskip("pyspark")
    named = "spark.master=spark://host:7077"
    argv, _ = launch(SCRIPT, [], master=None, conf=[named], environ={**environ, "MASTER": "local[3]"})
    assert argv[1:3] == ["--master", "spark://host:7077"]
    assert argv.count("--master") == 1
    argv, _ = launch(SCRIPT, [], master="spark://other:7077", conf=[named], environ=environ)
    assert argv[1:3] == ["--master", "spark://other:7077"]
    _, env = launch(SCRIPT, [], master=None, conf=["spark.master=local[2]"], environ=environ)
    assert shlex.split(env["PYSPARK_SUBMIT_ARGS"])[:2] == ["--master", "local[2]"]


def test_s4_arguments_for_spark_that_the_environment_has_are_kept(environ: dict[str, str]) -> None:
    environ["PYSPARK_SUBMIT_ARGS"] = (
        "--packages 'a:b:1' --master local[7] --conf \"spark.a=x y\" -c spark.b=1 "
        "--conf=spark.python.unix.domain.socket.enabled=false pyspark-shell"
    )

    def options(*conf: str, master: str | None = None) -> list[str]:
        return shlex.split(launch(SCRIPT, [], master=master, conf=conf, environ=environ).env["PYSPARK_SUBMIT_ARGS"])

    found = options("spark.b=2")
    assert found[:5] == ["--packages", "a:b:1", "--master", "local[7]", "--conf"]
    assert found.count("pyspark-shell") == 1
    assert found[-1] == "pyspark-shell"
    assert found.index("spark.b=2") > found.index("spark.b=1"), "Spark takes the last one"
    assert "spark.python.unix.domain.socket.enabled=true" not in found
    masters = [found[at + 1] for at, each in enumerate(found) if each == "--master"]
    assert masters[-1] == "local[7]"
    found = options(master="local[2]")
    assert [found[at + 1] for at, each in enumerate(found) if each == "--master"][-1] == "local[2]"


def test_s4_a_cluster_gets_the_arguments_that_the_environment_has(environ: dict[str, str]) -> None:
    pytest.importorskip("pyspark")
    environ["PYSPARK_SUBMIT_ARGS"] = "--packages a:b:1 --master spark://host:7077 pyspark-shell"
    argv, env = launch(SCRIPT, ["x"], master=None, conf=[], environ=environ)
    assert argv[1:7] == ["--packages", "a:b:1", "--master", "spark://host:7077", "--master", "spark://host:7077"]
    assert argv[-2:] == ["pipeline.py", "x"]
    assert "PYSPARK_SUBMIT_ARGS" not in env


@pytest.mark.parametrize("text", ["--conf 'spark.a=1", "--conf spark.a pyspark-shell"])
def test_s4_arguments_that_spark_cannot_take_are_refused(environ: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match="PYSPARK_SUBMIT_ARGS"):
        launch(SCRIPT, [], master=None, conf=[], environ={**environ, "PYSPARK_SUBMIT_ARGS": text})


def test_s4_workers_have_their_modules_from_the_start_where_their_python_is_this_one(environ: dict[str, str]) -> None:
    def options(*conf: str, master: str = "local[1]", **more: str) -> str:
        return launch(SCRIPT, [], master=master, conf=conf, environ={**environ, **more}).env["PYSPARK_SUBMIT_ARGS"]

    ours = "spark.python.daemon.module=ottla.spark.worker_daemon"
    assert ours in options()
    assert ours in options(PYSPARK_PYTHON=sys.executable)
    assert ours not in options(PYSPARK_PYTHON="python9")
    assert ours not in options("spark.pyspark.python=python9")
    assert ours not in options("spark.python.daemon.module=pyspark.daemon")


def test_s4_workers_find_a_package_that_is_not_installed(environ: dict[str, str]) -> None:
    _, env = launch(SCRIPT, [], master=None, conf=[], environ={**environ, "PYTHONPATH": "/elsewhere"})
    found = env["PYTHONPATH"].split(os.pathsep)
    assert found[-1] == "/elsewhere"


def test_s4_on_a_local_master_workers_take_the_installed_pyspark(environ: dict[str, str], tmp_path: Path) -> None:
    """Spark's own home has it as a zip, in which nothing is compiled."""
    package = Path(pytest.importorskip("pyspark").__file__).parent
    environ["XDG_CACHE_HOME"] = str(tmp_path / "cache")

    def home(conf: Sequence[str] = (), **more: str) -> str | None:
        return launch(SCRIPT, [], master="local[1]", conf=conf, environ={**environ, **more}).env.get("SPARK_HOME")

    made = home()
    assert made is not None
    assert made == home() == home(PYSPARK_PYTHON=sys.executable)
    there = {each.relative_to(package) for each in (package / "python" / "lib").iterdir()}
    here = {each.relative_to(made) for each in Path(made, "python", "lib").iterdir()}
    assert {each.name for each in there - here} == {"pyspark.zip"}
    for name in ("bin", "jars", "python/lib"):
        assert list(Path(made, name).iterdir())
    assert [each.name for each in (tmp_path / "cache" / "ottla").iterdir()] == [Path(made).name]
    assert home(SPARK_HOME="/opt/spark") == "/opt/spark"
    for other in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        assert home(**{other: "python9"}) is None, "it may have another PySpark, or none"
    assert home(conf=["spark.pyspark.python=python9"]) is None
    assert "SPARK_HOME" not in launch(SCRIPT, [], master="spark://host:7077", conf=[], environ=environ).env


def test_s4_without_a_cache_spark_starts_from_its_own_home(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for cache in ({}, {"HOME": ""}, {"HOME": str(tmp_path / "file")}, {"XDG_CACHE_HOME": "here"}):
        assert "SPARK_HOME" not in launch(SCRIPT, [], master=None, conf=[], environ={**environ, **cache}).env


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """What counts of a PySpark."""
    pytest.importorskip("pyspark")
    package = tmp_path / "pyspark"
    for name in ("bin/spark-submit", "jars/spark.jar", "python/lib/pyspark.zip", "python/lib/py4j.zip"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    return package


def test_s4_two_starts_may_make_spark_s_home_at_once(package: Path, tmp_path: Path) -> None:
    made = []

    def make() -> None:
        made.append(home_without_zip(package, {"HOME": str(tmp_path)}))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [made[0]] * 8 == made != [None] * 8
    assert len(list((tmp_path / ".cache" / "ottla").iterdir())) == 1


@pytest.mark.parametrize("harm", ["a link is gone", "a link leads elsewhere", "it is empty"])
def test_s4_a_home_that_was_harmed_is_made_anew(package: Path, tmp_path: Path, harm: str) -> None:
    home = home_without_zip(package, {"HOME": str(tmp_path)})
    assert home is not None
    (home / "bin").unlink()
    if harm == "a link leads elsewhere":
        (home / "bin").mkdir()
        (home / "bin" / "spark-submit").write_text("other")
    elif harm == "it is empty":
        shutil.rmtree(home)
        home.mkdir()
    assert home_without_zip(package, {"HOME": str(tmp_path)}) == home
    assert (home / "bin" / "spark-submit").read_text() == ""


def test_s4_a_cache_where_others_may_write_is_not_taken(package: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert home_without_zip(package, environ) is not None
    (tmp_path / ".cache" / "ottla").chmod(0o777)
    assert home_without_zip(package, environ) is None


def test_s4_without_java_there_is_one_clear_sentence(tmp_path: Path) -> None:
    for environ in ({"PATH": str(tmp_path)}, {"JAVA_HOME": str(tmp_path), "PATH": os.defpath}):
        with pytest.raises(ConfigError, match="Spark needs Java 17 or newer"):
            launch(SCRIPT, [], master=None, conf=[], environ=environ)


def test_s4_a_setting_without_a_value_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="expected KEY=VALUE"):
        launch(SCRIPT, [], master=None, conf=["spark.x"], environ=environ)


def test_s4_a_script_can_be_a_client_of_spark_connect(environ: dict[str, str]) -> None:
    pytest.importorskip("grpc")
    argv, env = launch(SCRIPT, ["x"], master=None, conf=[], environ={}, remote="sc://host:15002", live=True)
    assert argv == [sys.executable, "pipeline.py", "x"]
    assert env == {"SPARK_REMOTE": "sc://host:15002"}
    argv, env = launch(SCRIPT, ["x"], master=None, conf=["spark.x=1"], environ=environ, remote="local[2]", live=True)
    assert argv == [sys.executable, "-P", "-m", "ottla.spark.script", "pipeline.py", "x"]
    assert env["SPARK_REMOTE"] == "local[2]"
    assert {"local[2]", "spark.x=1"} <= set(shlex.split(env["PYSPARK_SUBMIT_ARGS"]))


@pytest.mark.parametrize(
    ("remote", "master", "conf", "said"),
    [
        ("sc://host", "local[2]", [], "--master and --remote: give one of them"),
        ("host:15002", None, [], "expected sc://HOST:PORT"),
        ("local-cluster[2,1,1024]", None, [], "expected sc://HOST:PORT"),
        ("sc://host", None, ["spark.x=1"], "settings are those of the server"),
    ],
)
def test_s4_what_cannot_be_had_with_spark_connect_is_refused(
    environ: dict[str, str], remote: str, master: str | None, conf: list[str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        launch(SCRIPT, [], master=master, conf=conf, environ=environ, remote=remote)


def test_s4_a_script_has_a_server_of_forked_processes_unless_a_python_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    script = tmp_path / "script.py"
    script.write_text(f"import os\nprint(os.environ.get({SERVER_VARIABLE!r}), os.environ['PYSPARK_PYTHON'])\n")
    environ = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYSPARK_PYTHON")}
    environ |= {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}

    def said(*conf: str, **more: str) -> list[str]:
        command = [sys.executable, "-m", "ottla", "run", "--master", "local[1]", *conf, str(script)]
        return subprocess.run(
            command, env={**environ, **more}, capture_output=True, text=True, check=True
        ).stdout.split()

    server, python = said()
    assert server.startswith(str(tmp_path))
    assert Path(python).name == "python"
    assert python != sys.executable
    assert said(PYSPARK_PYTHON=sys.executable) == ["None", sys.executable]
    assert said("--conf", f"spark.pyspark.python={sys.executable}") == ["None", sys.executable]
    assert said(SPARK_HOME="/opt/spark") == ["None", sys.executable]
