"""PySpark, the Python of Spark's workers, and whether their versions fit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ottla.cli.doctor.finding import Finding, error, ok, skipped, warning

_PATIENCE_S = 60
_OLDEST_PYSPARK = (4, 2)
_MARK = "ottla-doctor "
_INSTALL = "pip install 'ottla[spark]'"


class Probed(NamedTuple):
    """What a Python has, as `probe.py` says it; `why` says why it said nothing."""

    said: Mapping[str, Any] | None
    why: str = ""


def check_packages() -> Iterator[Finding]:
    """PySpark in this Python, which is the driver's."""
    try:
        pyspark = version("pyspark")
    except PackageNotFoundError:
        yield error("pyspark", f"PySpark is not installed in {sys.executable}", _INSTALL)
        return
    numbers = tuple(int(part) for part in pyspark.split(".")[:2] if part.isdecimal())
    if numbers < _OLDEST_PYSPARK:
        yield error("pyspark", f"PySpark {pyspark} is too old: 4.2 or newer is needed", f"{_INSTALL} --upgrade")
    else:
        yield ok("pyspark", f"PySpark {pyspark}")


def check_spark_home(environ: Mapping[str, str]) -> Iterator[Finding]:
    """SPARK_HOME, if it is set: the Spark there has to be the one that PySpark is of."""
    home = environ.get("SPARK_HOME")
    if not home:
        return
    cores = sorted(Path(home, "jars").glob("spark-core_*.jar"))
    if not cores:
        yield error(
            "spark-home", f"SPARK_HOME={home} holds no Spark", "correct it, or unset it: PySpark brings its own"
        )
        return
    theirs = cores[0].stem.rpartition("-")[2]
    try:
        ours = version("pyspark")
    except PackageNotFoundError:
        return
    if theirs.split(".")[:2] != ours.split(".")[:2]:
        advice = f"unset SPARK_HOME, or pip install 'pyspark=={theirs}'"
        yield error("spark-home", f"SPARK_HOME={home} is Spark {theirs}, and PySpark here is {ours}", advice)
    else:
        yield ok("spark-home", f"SPARK_HOME={home} is Spark {theirs}")


def check_workers(environ: Mapping[str, str]) -> Iterator[Finding]:
    """The Python that `ottla run` gives the workers, and the one that they take without it."""
    named = environ.get("PYSPARK_PYTHON")
    python = named or sys.executable
    found = shutil.which(python, path=environ.get("PATH"))
    where = f"PYSPARK_PYTHON={named}" if named else python
    if found is None:
        yield error("workers", f"{where} is not a program", "set PYSPARK_PYTHON to a Python that has ottla[spark]")
        return
    yield from judge(where, probe(found, environ))
    driver = environ.get("PYSPARK_DRIVER_PYTHON")
    if not named and not driver:
        yield from _without_run(environ)


def judge(where: str, probed: Probed) -> Iterator[Finding]:
    """What is wrong with a worker's Python."""
    said = probed.said
    if said is None:
        yield error(
            "workers", f"{where} does not run: {probed.why}", "set PYSPARK_PYTHON to a Python that has ottla[spark]"
        )
        return
    theirs = ".".join(map(str, said["version"]))
    if tuple(said["version"][:2]) != sys.version_info[:2]:
        ours = ".".join(map(str, sys.version_info[:3]))
        yield error(
            "workers",
            f"{where} is Python {theirs}, and the driver's is {ours}: Spark stops with PYTHON_VERSION_MISMATCH",
            f"set PYSPARK_PYTHON to a Python {sys.version_info[0]}.{sys.version_info[1]} that has ottla[spark]",
        )
        return
    missing = [
        f"{name} ({said['packages'][name][1]})" for name in ("pyarrow", "ottla") if said["packages"][name][0] is None
    ]
    if missing:
        yield error("workers", f"{where} cannot import {', '.join(missing)}", f"there: {_INSTALL}")
        return
    for name, why in said["too_old"].items():
        advice = f"there: {_INSTALL} --upgrade, and {name} as PySpark wants it"
        yield (error if name == "pyarrow" else warning)(name, f"{where}: {why}", advice)
    broken = {name: why for name, why in said["sources"].items() if why is not None}
    for name, why in sorted(broken.items()):
        yield error(
            "data-source",
            f"the module {name} of {where} cannot be imported ({why}): for that Spark passes over every Python data "
            "source, ours too",
            f"mend or uninstall {name}",
        )
    if "pyspark_ottla" not in said["sources"]:
        yield error("data-source", f"{where} does not find the module pyspark_ottla", f"there: {_INSTALL}")
    if not broken:
        versions = ", ".join(f"{name} {told}" for name, (told, _) in said["packages"].items() if told is not None)
        yield ok("workers", f"Python {theirs} ({said['executable']}): {versions}")


def _without_run(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Without PYSPARK_PYTHON, a script that is not started by `ottla run` takes `python3` on the PATH."""
    other = shutil.which("python3", path=environ.get("PATH"))
    advice = f"start scripts with `ottla run`, or set PYSPARK_PYTHON={sys.executable}"
    if other is None:
        yield warning(
            "python3", "there is no python3 on the PATH, which Spark's workers take without `ottla run`", advice
        )
        return
    if Path(other).samefile(sys.executable) and Path(other).parent == Path(sys.executable).parent:
        return
    probed = probe(other, environ)
    if probed.said is None or probed.said["prefix"] != sys.prefix:
        yield warning(
            "python3",
            f"without `ottla run` and PYSPARK_PYTHON, Spark's workers take {other}, which is another Python",
            advice,
        )


def probe(python: str, environ: Mapping[str, str]) -> Probed:
    """Ask a Python what it has, with the path that a worker of Spark would have."""
    if find_spec("pyspark") is None:
        return Probed(None, "PySpark is not installed")
    from ottla.spark.run import workers_path

    script = Path(__file__).with_name("probe.py").read_text()
    try:
        done = subprocess.run(
            [python, "-"],
            input=script,
            env={**environ, "PYTHONPATH": workers_path(environ)},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return Probed(None, str(fault))
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            return Probed(json.loads(line.removeprefix(_MARK)))
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return Probed(None, said[-1] if said else f"it ended with {done.returncode} and said nothing")


def check_scratch(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Where Spark puts what does not fit into memory."""
    from ottla.cli.doctor.disk import check_directory

    named = environ.get("SPARK_LOCAL_DIRS") or environ.get("TMPDIR") or "/tmp"
    for part in named.split(","):
        yield check_directory("spark-scratch", Path(part), "set SPARK_LOCAL_DIRS to a directory that can be written")


def check_spark(environ: Mapping[str, str] = os.environ) -> Sequence[Finding]:
    """All that Spark needs on this machine."""
    from ottla.cli.doctor.java import check_java

    found = [check_java(environ), *check_packages(), *check_spark_home(environ)]
    if find_spec("pyspark") is None:
        found.append(skipped("workers", "without PySpark nothing can be said of its workers"))
    else:
        found += check_workers(environ)
    return [*found, *check_scratch(environ)]
