"""A pipeline as files, started where Spark can run (SPEC S4): each start writes what has come, and nothing twice.

By `ottla run` on a local cluster, with Ottla's wheel sent along in an archive, and as a client of Spark Connect; by
`spark-submit` alone; and by Spark's own command as a declarative pipeline.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc")

import pyspark

from tests.spark.words import LINES, expected_words, make_topic, read_committed, send_lines, words_in

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("java")]

_ROOT = Path(__file__).resolve().parents[2]
_EXAMPLES = _ROOT / "examples"
_LOCAL_CLUSTER = "local-cluster[2,1,1024]"
#: Where the workers import Ottla from, a row for each of two tasks.
_WHERE = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

def home(_):
    import ottla.wire.record_codec as codec
    return codec.__file__

spark = SparkSession.builder.getOrCreate()
rows = spark.range(0, 2, 1, 2).select(udf(home, "string")("id")).collect()
open(sys.argv[1], "w").write("\\n".join(row[0] for row in rows))
"""
#: The archives of classes that Spark's JVM has in memory, and of what the Python processes of its tasks are copies.
_STARTED = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

def above(_):
    parent = os.getppid()
    return [Path(f"/proc/{pid}/cmdline").read_text() for pid in (os.getpid(), parent)]

spark = SparkSession.builder.getOrCreate()
maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()
archives = sorted({line.split()[-1] for line in maps.splitlines() if line.endswith(".jsa")})
tasks = spark.range(0, 1, 1, 1).select(udf(above, "array<string>")("id")).first()[0]
Path(sys.argv[1]).write_text(json.dumps({"archives": archives, "tasks": tasks}))
"""


def _run(command: Sequence[str], cwd: Path, **environ: str) -> None:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]


def _ottla_run(*arguments: str, cwd: Path) -> None:
    _run([sys.executable, "-m", "ottla", "run", *arguments], cwd)


class _Words:
    """The topics of a word count."""

    def __init__(self, bootstrap: str, fresh_name: Callable[[str], str]) -> None:
        self.bootstrap = bootstrap
        self.lines, self.words = (make_topic(bootstrap, fresh_name(name)) for name in ("lines", "words"))

    def counted_by(self, run: Callable[[], None]) -> None:
        """Two runs, with lines before each: every word is there once."""
        for times in (1, 2):
            send_lines(self.bootstrap, self.lines)
            run()
            assert words_in(self.bootstrap, self.words) == expected_words(times)

    def example(self, checkpoint: Path) -> list[str]:
        """`examples/wordcount.py`, until it has counted all that is there."""
        topics = ["--input", self.lines, "--output", self.words]
        script = [str(_EXAMPLES / "wordcount.py"), "--bootstrap", self.bootstrap, *topics]
        return [*script, "--checkpoint", str(checkpoint), "--available-now"]


@pytest.fixture
def words(bootstrap: str, fresh_name: Callable[[str], str]) -> _Words:
    return _Words(bootstrap, fresh_name)


def test_s4_on_a_local_cluster(words: _Words, tmp_path: Path) -> None:
    script = words.example(tmp_path / "checkpoint")
    words.counted_by(lambda: _ottla_run("--master", _LOCAL_CLUSTER, *script, cwd=tmp_path))


def test_s4_by_spark_submit(words: _Words, tmp_path: Path) -> None:
    """Without `ottla run`: the workers need the Python that has Ottla, and nothing else."""
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    command = [submit, "--master", _LOCAL_CLUSTER, *words.example(tmp_path / "checkpoint")]
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    words.counted_by(lambda: _run(command, tmp_path, **python))


def test_s4_as_a_client_of_spark_connect(words: _Words, tmp_path: Path) -> None:
    script = words.example(tmp_path / "checkpoint")
    words.counted_by(lambda: _ottla_run("--remote", "local[2]", *script, cwd=tmp_path))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere nothing is forked, and /proc tells nothing")
def test_s4_on_a_prepared_machine(words: _Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java maps the archive that `ottla prepare` has made, and Python processes are copies of one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    _run([sys.executable, "-m", "ottla", "prepare"], tmp_path)
    script, found = tmp_path / "started.py", tmp_path / "found"
    script.write_text(_STARTED)
    _ottla_run("--master", "local[1]", str(script), str(found), cwd=tmp_path)
    started = json.loads(found.read_text())
    (made,) = (tmp_path / "ottla").glob("classes-*.jsa")
    assert str(made) in started["archives"]
    assert all("ottla.spark.fork_server" in each for each in started["tasks"]), started["tasks"]
    example = words.example(tmp_path / "checkpoint")
    words.counted_by(lambda: _ottla_run("--master", "local[2]", *example, cwd=tmp_path))


def _installed_from_a_wheel(packages: Path, scratch: Path) -> None:
    """A wheel of this checkout, made in `scratch`, is installed to `packages`."""
    source = scratch / "source"
    compiled = shutil.ignore_patterns("*.c", "*.so", "__pycache__", "*.egg-info")
    shutil.copytree(_ROOT / "src", source / "src", ignore=compiled)
    shutil.copytree(_EXAMPLES, source / "examples", ignore=compiled)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(scratch), str(source)], scratch)
    (wheel,) = scratch.glob("*.whl")
    _run([*pip, "install", "--no-deps", "--no-compile", "--target", str(packages), str(wheel)], scratch)


def test_s4_with_a_wheel_sent_to_the_workers_in_an_archive(words: _Words, tmp_path: Path) -> None:
    """What docs/spark.md says, with a wheel of this checkout: its compiled codecs come along."""
    packages = tmp_path / "packages"
    _installed_from_a_wheel(packages, tmp_path)
    with tarfile.open(tmp_path / "ottla.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(packages, ".")
    sent = [f"spark.archives={tmp_path / 'ottla.tar.gz'}#sent", "spark.executorEnv.PYTHONPATH=./sent"]
    options = ["--master", _LOCAL_CLUSTER, *(word for each in sent for word in ("--conf", each))]
    where, found = tmp_path / "where.py", tmp_path / "found"
    where.write_text(_WHERE)
    _ottla_run(*options, str(where), str(found), cwd=tmp_path)
    homes = found.read_text().splitlines()
    assert len(homes) == 2
    assert all("/sent/ottla/wire/record_codec" in home for home in homes), homes
    script = words.example(tmp_path / "checkpoint")
    words.counted_by(lambda: _ottla_run(*options, *script, cwd=tmp_path))


def test_s4_as_a_declarative_pipeline(words: _Words, tmp_path: Path) -> None:
    folder = shutil.copytree(_EXAMPLES / "declarative", tmp_path / "declarative")
    spec = folder / "spark-pipeline.yml"
    text = spec.read_text().replace("file:///tmp/ottla-declarative-words", f"file://{tmp_path}/storage")
    for name, value in (("bootstrap", words.bootstrap), ("input", words.lines), ("output", words.words)):
        before, key, after = text.partition(f"words.{name}: ")
        text = before + key + value + "\n" + after.partition("\n")[2]
    spec.write_text(text)
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run"]
    for times in (1, 2):
        send_lines(words.bootstrap, words.lines)
        _run(command, folder, PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
        found = Counter((row["partition"], row["offset"]) for row in read_committed(words.bootstrap, words.words))
        assert found == Counter({(n % 2, n // 2): len(line.split()) for n, line in enumerate(LINES * times)})
