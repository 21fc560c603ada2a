"""A SPARK_HOME without `pyspark.zip`, so that Python processes of Spark take the installed PySpark.

Spark puts the zip of its home before everything else on their path. Nothing in it is compiled, so each process compiles
PySpark anew: some 0.4 s of a core, and a query starts seven kinds of them. The installed package has the same modules,
compiled. This home has links to all that Spark's JVM needs of the package, and nothing else.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LINKED = ("bin", "conf", "data", "jars", "licenses", "sbin")


def home_without_zip(package: Path, environ: Mapping[str, str]) -> Path | None:
    """The home for the PySpark that is installed in `package`, made in the user's cache at first.

    None if the user has no cache, or it cannot be written: Spark then starts more slowly.
    """
    try:
        name = hashlib.sha256(f"{version('pyspark')} {package}".encode()).hexdigest()[:16]
        found = _cache(environ) / f"spark-home-{name}"
        if not found.exists():
            _make(package, found)
        return found if (found / "bin" / "spark-submit").exists() else None
    except (OSError, PackageNotFoundError):
        return None


def _cache(environ: Mapping[str, str]) -> Path:
    """The folder for Ottla in the user's cache (XDG Base Directory Specification). FileNotFoundError."""
    home = environ.get("HOME", "")
    for cache in (environ.get("XDG_CACHE_HOME", ""), str(Path(home, ".cache"))):
        if Path(cache).is_absolute():
            return Path(cache, "ottla")
    raise FileNotFoundError("neither XDG_CACHE_HOME nor HOME names a folder")


def _make(package: Path, home: Path) -> None:
    """Make it whole under another name first: another start may make it, too."""
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=home.name, dir=home.parent))
    try:
        for name in _LINKED:
            (made / name).symlink_to(package / name)
        made.rename(home)
    except OSError:
        shutil.rmtree(made)
        if not home.exists():
            raise
