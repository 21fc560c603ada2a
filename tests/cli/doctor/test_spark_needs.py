"""`ottla doctor`: Java, PySpark and the Python of Spark's workers. Foreign programs are shell scripts."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.cli.doctor.disk import check_data_directory, check_directory
from ottla.cli.doctor.finding import Finding, Status
from ottla.cli.doctor.java import check_java, major_version
from ottla.cli.doctor.python import check_scratch, check_spark_home, check_workers
from ottla.testing import Broker
from tests.cli.conftest import Ottla


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def java_that_says(directory: Path, said: str, code: int = 0) -> dict[str, str]:
    program(directory / "bin" / "java", f"echo '{said}' >&2\nexit {code}")
    return {"JAVA_HOME": str(directory)}


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("bash: java: no", None),
    ],
)
def test_java_says_its_version_in_many_ways(said: str, major: int | None) -> None:
    assert major_version(said) == major


@pytest.mark.parametrize(
    ("said", "code", "status", "found"),
    [
        ('openjdk version "21.0.2" 2024', 0, Status.OK, "Java 21"),
        ('java version "1.8.0_292"', 0, Status.ERROR, "is Java 8, and Spark needs 17 or newer"),
        ('openjdk version "11.0.2" 2024', 0, Status.ERROR, "is Java 11"),
        ('openjdk version "27" 2026', 0, Status.WARNING, "is Java 27"),
        ("Error: could not find libjava.so", 2, Status.ERROR, "ends with 2: Error: could not find libjava.so"),
    ],
)
def test_s4_an_old_or_broken_java_is_found(tmp_path: Path, said: str, code: int, status: Status, found: str) -> None:
    finding = check_java(java_that_says(tmp_path, said, code))
    assert finding.status is status
    assert found in finding.found
    assert finding.advice is None if status is Status.OK else "install Java 17" in str(finding.advice)


def test_s4_a_missing_java_is_found(tmp_path: Path) -> None:
    for environ, why in (({"PATH": str(tmp_path)}, "there is none"), ({"JAVA_HOME": str(tmp_path)}, "has no bin/java")):
        finding = check_java(environ)
        assert finding.status is Status.ERROR
        assert why in finding.found


def test_s4_a_java_that_is_no_program_is_found(tmp_path: Path) -> None:
    java = program(tmp_path / "bin" / "java", "")
    java.write_bytes(b"\x7fELF of another machine")
    finding = check_java({"JAVA_HOME": str(tmp_path)})
    assert finding.status is Status.ERROR
    assert "does not run" in finding.found


def workers(**environ: str) -> list[Finding]:
    pytest.importorskip("pyspark")
    return list(check_workers({**os.environ, **environ}))


def python_that_says(path: Path, **said: object) -> str:
    """A Python that has what `probe.py` would say of it."""
    here: Mapping[str, object] = {
        "version": list(sys.version_info[:3]),
        "executable": str(path),
        "prefix": str(path.parent),
        "packages": {name: ["9.9", None] for name in ("pyspark", "pyarrow", "pandas", "ottla")},
        "too_old": {},
        "sources": {"pyspark_ottla": None},
    }
    return str(program(path, f"cat > /dev/null\ncat <<'END'\nottla-doctor {json.dumps({**here, **said})}\nEND"))


def test_s4_this_python_is_one_that_workers_can_use() -> None:
    findings = workers(PYSPARK_PYTHON=sys.executable)
    assert [(each.check, each.status) for each in findings] == [("workers", Status.OK)]


def test_s4_a_python_without_our_packages_is_found(tmp_path: Path) -> None:
    bare = program(tmp_path / "bare", f'exec {sys.executable} -S -E "$@"')  # no site-packages, no PYTHONPATH
    (finding,) = workers(PYSPARK_PYTHON=str(bare))
    assert finding.status is Status.ERROR
    assert "cannot import pyarrow (ModuleNotFoundError" in finding.found
    assert "pip install" in str(finding.advice)


def test_s4_a_python_of_another_version_is_found(tmp_path: Path) -> None:
    (finding,) = workers(PYSPARK_PYTHON=python_that_says(tmp_path / "python3.9", version=[3, 9, 2]))
    assert finding.status is Status.ERROR
    assert "is Python 3.9.2" in finding.found
    assert "PYTHON_VERSION_MISMATCH" in finding.found


def test_s4_packages_that_do_not_fit_are_found(tmp_path: Path) -> None:
    why = {"pyarrow": "PyArrow >= 18.0.0 must be installed", "pandas": "Pandas >= 2.2.0 must be installed"}
    found = workers(PYSPARK_PYTHON=python_that_says(tmp_path / "old", too_old=why))
    assert {each.check: each.status for each in found} == {
        "pyarrow": Status.ERROR,
        "pandas": Status.WARNING,  # we do not need it
        "workers": Status.OK,
    }


def test_s4_a_broken_module_that_hides_all_data_sources_is_found(tmp_path: Path) -> None:
    (tmp_path / "pyspark_broken.py").write_text("import there_is_no_such_module\n")
    found = workers(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(tmp_path))
    assert [(each.check, each.status) for each in found] == [("data-source", Status.ERROR)]
    assert "pyspark_broken" in found[0].found


@pytest.mark.parametrize("text", ["exit 3", "echo no such library >&2; exit 127"])
def test_s4_a_python_that_does_not_run_is_found(tmp_path: Path, text: str) -> None:
    (finding,) = workers(PYSPARK_PYTHON=str(program(tmp_path / "python", text)))
    assert finding.status is Status.ERROR
    assert "does not run" in finding.found


def test_s4_a_python_that_is_not_there_is_found() -> None:
    (finding,) = workers(PYSPARK_PYTHON="python9")
    assert (finding.status, finding.found) == (Status.ERROR, "PYSPARK_PYTHON=python9 is not a program")


def test_s4_without_ottla_run_workers_take_another_python(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    python_that_says(tmp_path / "python3")
    *_, finding = check_workers({**environ, "PATH": str(tmp_path)})
    assert (finding.check, finding.status) == ("python3", Status.WARNING)
    assert f"PYSPARK_PYTHON={sys.executable}" in str(finding.advice)


def test_s4_a_spark_home_of_another_version_is_found(tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark")
    assert [each.status for each in check_spark_home({})] == []
    (empty,) = check_spark_home({"SPARK_HOME": str(tmp_path)})
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").touch()
    (other,) = check_spark_home({"SPARK_HOME": str(tmp_path)})
    (own,) = check_spark_home({"SPARK_HOME": str(Path(pyspark.__file__).parent)})
    assert [each.status for each in (empty, other, own)] == [Status.ERROR, Status.ERROR, Status.OK]
    assert "is Spark 3.5.1" in other.found


def test_a_directory_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    below = check_directory("data-dir", file / "data", "do it")
    assert (below.status, below.advice) == (Status.ERROR, "do it")
    assert f"{file} is not a directory" in below.found
    no_files = check_directory("data-dir", Path("/proc/self"), "do it")  # nobody makes files there, not even root
    assert no_files.status is Status.ERROR
    assert "cannot be written" in no_files.found
    assert check_directory("data-dir", tmp_path / "a" / "b", "do it").status is not Status.ERROR
    assert sorted(tmp_path.iterdir()) == [file]
    assert [each.status for each in check_scratch({"SPARK_LOCAL_DIRS": f"{file},/proc/self"})] == [Status.ERROR] * 2


def test_a_data_directory_that_a_broker_has_is_found(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data"):
        taken = check_data_directory(tmp_path / "data")
    assert (taken.status, "in use by a broker" in taken.found) == (Status.WARNING, True)
    assert check_data_directory(tmp_path / "data").status is not Status.ERROR


def test_the_command_says_what_it_found_and_ends_with_1(
    ottla: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", java_that_says(tmp_path, 'openjdk version "11.0.2"')["JAVA_HOME"])
    said = ottla("doctor", "--no-broker", "--data-dir", str(tmp_path / "data"))
    assert (said.code, said.err) == (1, "")
    assert "error    java " in said.out
    assert "-> install Java 17" in said.out
    found = ottla("doctor", "--no-broker", "--data-dir", str(tmp_path / "data"), "--json").data
    assert [each["status"] for each in found if each["check"] == "java"] == ["error"]
    assert {"check", "status", "found", "advice"} == set(found[0])
