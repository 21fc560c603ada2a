"""A SPARK_HOME without `pyspark.zip`, so that Python processes of Spark take the installed PySpark.

Spark puts the zip of its home before everything else on their path. Nothing in it is compiled, so each process compiles
PySpark anew: some 0.4 s of a core, and a query starts seven kinds of them. The installed package has the same modules,
compiled. This home has a link to everything else of the package that is not a module, and a program that asks for a
Python process that has them imported already (`fork_client`).
"""

import errno
import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

#: Folders of the package; in a package from PyPI there is no `conf`, but a user may make one.
_LINKED = ("bin", "conf", "data", "jars", "licenses", "sbin")
_LEFT_OUT = "pyspark.zip"
#: The program, in the home.
FORKED_PYTHON = Path("ottla", "python")


def home_without_zip(package: Path, environ: Mapping[str, str]) -> Path | None:
    """The home for the PySpark that is installed in `package`, made in the user's cache at first.

    None if the user has no cache, it cannot be written, or somebody else could write there: Spark then starts more
    slowly.
    """
    try:
        name = hashlib.sha256(f"{version('pyspark')} {package} {_program()}".encode()).hexdigest()[:16]
        cache, links = _cache(environ), _links(package)
        home = cache / f"spark-home-{name}"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours_alone(cache):
            return None
        if not _has(home, links):
            _make(home, links)
        return home if _has(home, links) and (home / "bin" / "spark-submit").exists() else None
    except (OSError, PackageNotFoundError):
        return None


def _links(package: Path) -> dict[str, Path]:
    """What is linked, by its path in the home."""
    links = {name: package / name for name in _LINKED}
    for each in (package / "python").glob("*"):
        if each.name != "lib":
            links[f"python/{each.name}"] = each
    for each in (package / "python" / "lib").glob("*"):
        if each.name != _LEFT_OUT:
            links[f"python/lib/{each.name}"] = each
    return links


def _program() -> str:
    client = Path(__file__).with_name("fork_client.py")
    # `-E`: Spark puts a jar of thousands of files on PYTHONPATH, and who looks into it has the names of all in memory
    flags = "-E ${PYTHONNOUSERSITE:+-s} -P"
    return f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {flags} {shlex.quote(str(client))} "$@"\n'


def _is_ours_alone(folder: Path) -> bool:
    status = folder.lstat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _has(home: Path, links: Mapping[str, Path]) -> bool:
    program = home / FORKED_PYTHON
    if not (program.is_file() and program.read_text() == _program()):
        return False
    return all((home / name).is_symlink() and (home / name).readlink() == to for name, to in links.items())


def _cache(environ: Mapping[str, str]) -> Path:
    """The folder for Ottla in the user's cache (XDG Base Directory Specification). FileNotFoundError."""
    home = environ.get("HOME", "")
    for cache in (environ.get("XDG_CACHE_HOME", ""), str(Path(home, ".cache"))):
        if Path(cache).is_absolute():
            return Path(cache, "ottla")
    raise FileNotFoundError("neither XDG_CACHE_HOME nor HOME names a folder")


def _make(home: Path, links: Mapping[str, Path]) -> None:
    """Make it whole under another name first: another start may make it, too. What it was before is in the way."""
    made = Path(tempfile.mkdtemp(prefix="new-", dir=home.parent))
    try:
        for name, to in links.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).symlink_to(to)
        program = made / FORKED_PYTHON
        program.parent.mkdir()
        program.write_text(_program())
        program.chmod(0o700)
        if home.exists() and not _has(home, links):
            shutil.rmtree(home)
        made.rename(home)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # then the other start was first
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
