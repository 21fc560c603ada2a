"""`ottla prepare`: what makes each start of Spark on this machine shorter."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from ottla.cli.common import CommandError

_SOURCE, _TARGET = "prepare-input", "prepare-output"
_ROWS = 100


def prepare() -> None:
    """Make Spark start with half of the work on this machine, for `ottla run` on a local master.

    Runs a small job against a broker of its own, and has Java keep the classes that Spark has loaded, some 180 MB, in
    the user's cache ($XDG_CACHE_HOME or ~/.cache, in `ottla`). It takes about a minute, and is worth it once for each
    Java and each version of PySpark: for jobs that run often, or when an image of a container is built.

    Example: `ottla prepare`, and then `ottla run examples/nightly.py …` as before
    """
    if find_spec("pyspark") is None:
        raise CommandError("PySpark is not installed; `pip install 'ottla[spark]'` adds it")
    from ottla.spark.class_archive import make
    from ottla.spark.run import find_java, local_home

    java, home = find_java(os.environ), local_home(os.environ)
    if home is None:
        raise CommandError(
            "there is no place for the archive: HOME (or XDG_CACHE_HOME) has to name a folder that this user alone can "
            "write, and SPARK_HOME, PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON must not name another Spark or Python"
        )
    settings = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    if settings.is_dir() and any(settings.iterdir()):
        raise CommandError(
            f"Java keeps no classes while {settings} has files: Spark puts the folder on Java's class path. Give the "
            "settings with --conf, or start without an archive"
        )
    print("running a small job on Spark, about a minute …", flush=True)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-prepare-") as folder, _broker() as bootstrap:

        def train(java_options: str) -> tuple[list[str], Mapping[str, str]]:
            return _training(java_options, [bootstrap, _SOURCE, _TARGET, folder])

        path, size_bytes = make(home, java, train, Path(folder, "spark.log"))
    print(f"done in {time.monotonic() - begin:.0f} s: {path} ({size_bytes / 1e6:.0f} MB)")
    print("`ottla run` takes it from now on")


def _training(java_options: str, arguments: list[str]) -> tuple[list[str], Mapping[str, str]]:
    from ottla.spark.class_archive import OPTIONS_KEY
    from ottla.spark.run import launch

    env = launch(Path("-"), [], master="local[2]", conf=[f"{OPTIONS_KEY}={java_options}"], environ=os.environ).env
    return [sys.executable, "-m", "ottla.spark.training", *arguments], env


@contextmanager
def _broker() -> Iterator[str]:
    """A broker of this process with some rows to read."""
    from ottla import Admin, NewTopic, Producer
    from ottla.testing import Broker

    with Broker() as broker:
        config = {"bootstrap.servers": broker.bootstrap_servers}
        with Admin(config) as admin:
            admin.create_topics([NewTopic(name, 2) for name in (_SOURCE, _TARGET)])
        with Producer(config) as producer:
            for number in range(_ROWS):
                producer.send(_SOURCE, b"a row", key=b"%d" % (number % 10))
            producer.flush()
        yield broker.bootstrap_servers
