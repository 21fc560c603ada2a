"""An archive of the Java classes that Spark loads, so that a local master starts with half of the work.

Until the first row is written Spark's JVM loads and verifies its classes, which is half of the CPU of a start. Java can
keep them as they are in memory in one file, and map it (class data sharing, JEP 350). `ottla prepare` has Spark run a
small job on Ottla's source and sink (`training`), and Java write the file at its end. `ottla run` gives it to a local
master if it is there. Java takes it only with the same JVM and the same jars, and starts without it otherwise.

Java does not look whether such a file is whole, and crashes if it is not. So its size is in its name.
"""

import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.base.errors import OttlaError

#: Where Spark's options for Java stand that come before the user's own.
OPTIONS_KEY: Final = "spark.driver.defaultJavaOptions"
_PATIENCE_S: Final = 600.0
_TOLD_LINES: Final = 15


class PrepareError(OttlaError):
    """No archive could be made; the message says what to do."""


class Archive(NamedTuple):
    """The file of one SPARK_HOME and one Java; it may not be there."""

    folder: Path
    #: Of the home, and of its Java.
    home: str
    java: str

    def found(self) -> Path | None:
        """The file, if it is there and whole."""
        for each in self.folder.glob(f"classes-{self.home}-{self.java}-*.jsa"):
            if each.stem.rpartition("-")[2] == str(each.stat().st_size):
                return each
        return None


def archive(home: Path, java: str) -> Archive:
    """That of the SPARK_HOME `home` (`home.home_without_zip`) and the program `java`. Raises OSError."""
    program = Path(java).resolve()
    status = program.stat()
    release = program.parent.parent / "release"
    what = f"{program} {status.st_size} {status.st_mtime_ns} {release.read_text() if release.is_file() else ''}"
    return Archive(home.parent, home.name.rpartition("-")[2], hashlib.sha256(what.encode()).hexdigest()[:16])


def options(home: Path, java: str) -> str | None:
    """Java's options that take the archive; None if there is none."""
    try:
        found = archive(home, java).found()
    except OSError:
        return None
    return None if found is None else _option(f"-XX:SharedArchiveFile={found}", "-Xlog:cds*=off")


def make(
    home: Path, java: str, train: Callable[[str], tuple[list[str], Mapping[str, str]]], log: Path
) -> tuple[Path, int]:
    """Make the archive in place of an older one: (the file, its size in bytes). What the job prints goes to `log`.

    `train` gives the command and the environment of the job, with these options for Java. Raises PrepareError.
    """
    whole = archive(home, java)
    # a folder of its own: a Java that is given up and writes later finds it gone
    with tempfile.TemporaryDirectory(prefix="new-classes-", dir=whole.folder) as folder:
        made = Path(folder, "classes.jsa")
        _learn(*train(_option(f"-XX:ArchiveClassesAtExit={made}")), log)
        if not made.is_file():
            raise PrepareError(f"Java has written no archive. Its last words:\n{_end(log)}")
        size = _synced(made)
        for older in whole.folder.glob(f"classes-{whole.home}-{whole.java}-*.jsa"):
            older.unlink(missing_ok=True)
        return made.rename(whole.folder / f"classes-{whole.home}-{whole.java}-{size}.jsa"), size


def _learn(argv: list[str], env: Mapping[str, str], log: Path) -> None:
    with log.open("wb") as out:
        try:
            code = subprocess.run(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=_PATIENCE_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            raise PrepareError(f"the job that Java was to learn from took longer than {_PATIENCE_S:.0f} s") from None
    if code:
        raise PrepareError(f"the job that Java was to learn from has failed (exit code {code}):\n{_end(log)}")


def _option(*words: str) -> str:
    return " ".join(map(shlex.quote, words))


def _synced(path: Path) -> int:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def _end(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TOLD_LINES:])
