"""`ottla run`: a PySpark script with everything set that `format("ottla")` needs.

Spark starts Python workers with PYSPARK_PYTHON, or else with the `python3` on the PATH, which does not find Ottla when
a virtual environment is not activated. The settings below make Python sources and sinks fast. What the user gives with
--conf, or the script itself sets, wins; so does what Spark's own file of defaults and PYSPARK_SUBMIT_ARGS set.
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import ConfigError
from ottla.spark import class_archive, fork_server
from ottla.spark.home import FORKED_PYTHON, home_without_zip
from ottla.spark.user_settings import SHELL, user_settings

#: Settings for every master.
_DEFAULTS: Mapping[str, str] = {
    # rows of 900 KB come and go in turns, and not ten thousand of them at once
    "spark.sql.execution.arrow.maxBytesPerBatch": "8388608",
    # that is measured after each row, and where an array column is null in all rows, each time costs as many steps as
    # the batch has rows by then (Arrow's ListVector); Spark's own 10,000 is hardly faster with other columns
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    # takes 40 ms off every micro-batch
    "spark.python.unix.domain.socket.enabled": "true",
    # batch reads fetch only what the query's filters can pass
    "spark.sql.python.filterPushdown.enabled": "true",
}
#: Settings for a local master: its checkpoint is on a local disk, where a rename is atomic.
_LOCAL_DEFAULTS: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.ui.showConsoleProgress": "false",
}
#: And where the workers' Python is this one, which has the module for certain.
_OWN_PYTHON_DEFAULTS: Mapping[str, str] = {
    # a worker has PyArrow, the source and the sink from its start
    "spark.python.daemon.module": "ottla.spark.worker_daemon",
}
#: Settings that choose another Python.
_PYTHONS = frozenset({"spark.pyspark.python", "spark.pyspark.driver.python", "spark.sql.execution.pyspark.python"})


class Launch(NamedTuple):
    """A command and its environment."""

    argv: list[str]
    env: dict[str, str]


def launch(
    script: Path,
    arguments: Sequence[str],
    *,
    master: str | None,
    conf: Sequence[str],
    environ: Mapping[str, str],
    live: bool = False,
    remote: str | None = None,
) -> Launch:
    """How to run `script` with its `arguments`: as a Python program on a local master, else by spark-submit.

    `conf` are KEY=VALUE. With `live`, a line says how far the script's queries are, on a local master. With `remote`,
    an address of Spark Connect, the script is a client of the server there, or of one of its own (`local[2]`). Raises
    ConfigError when Java or PySpark is missing, a setting is not KEY=VALUE, or two of these exclude each other.
    """
    if remote is not None:
        _check_remote(remote, master, conf)
        if not remote.startswith("local"):
            return Launch([sys.executable, str(script), *arguments], {**environ, "SPARK_REMOTE": remote})
        own = launch(script, arguments, master=remote, conf=conf, environ=environ)
        return Launch(own.argv, {**own.env, "SPARK_REMOTE": remote})
    java = find_java(environ)
    user = user_settings(environ, _package())
    given = dict(map(_setting, conf))
    chosen = master or given.pop("spark.master", None) or environ.get("MASTER") or user.master or "local[*]"
    local = chosen.startswith("local") and not chosen.startswith("local-cluster")
    has_own_python = local and not _names_python(environ, {**user.conf, **given})
    ours = {**_DEFAULTS, **(_LOCAL_DEFAULTS if local else {}), **(_OWN_PYTHON_DEFAULTS if has_own_python else {})}
    home = local_home(environ) if has_own_python else None
    classes = None if home is None else class_archive.options(home, java)
    if classes is not None:
        ours[class_archive.OPTIONS_KEY] = classes
    settings = {name: value for name, value in ours.items() if name not in user.conf}
    options = [*user.arguments, "--master", chosen]  # of two that say the same, Spark takes the last one
    for name, value in {**settings, **given}.items():
        options += ["--conf", f"{name}={value}"]
    env = {**environ, "PYSPARK_PYTHON": environ.get("PYSPARK_PYTHON", sys.executable), "PYTHONPATH": _path(environ)}
    if local:
        env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if home is not None:
            env["SPARK_HOME"] = str(home)
        env["PYSPARK_SUBMIT_ARGS"] = " ".join(map(_quoted, [*options, SHELL]))
        module = "ottla.spark.live" if live else "ottla.spark.script"
        # `-P`: a file of the folder where it is called must not be taken for a module before the script's own are
        return Launch([sys.executable, "-P", "-m", module, str(script), *arguments], env)
    env["PYSPARK_DRIVER_PYTHON"] = sys.executable
    env.pop("PYSPARK_SUBMIT_ARGS", None)
    return Launch([str(_spark_home() / "bin" / "spark-submit"), *options, str(script), *arguments], env)


def _names_python(environ: Mapping[str, str], settings: Mapping[str, str]) -> bool:
    """Whether another Python than this one is to run."""
    pythons = {environ[name] for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON") if name in environ}
    return bool(pythons - {sys.executable} or _PYTHONS & settings.keys())


def local_home(environ: Mapping[str, str]) -> Path | None:
    """The SPARK_HOME of a local master with this Python; None if there can be none, or another one is named."""
    package = _package()
    if package is None or "SPARK_HOME" in environ or _names_python(environ, {}):
        return None
    return home_without_zip(package, environ)


def _check_remote(remote: str, master: str | None, conf: Sequence[str]) -> None:
    if master is not None:
        raise ConfigError("--master and --remote: give one of them. A server of Spark Connect has its own master")
    if not remote.startswith(("sc://", "local")) or remote.startswith("local-cluster"):
        raise ConfigError(f"--remote {remote}: expected sc://HOST:PORT, or local[2] for a server of its own")
    if conf and not remote.startswith("local"):
        raise ConfigError(
            f"--conf {conf[0]}: settings are those of the server at {remote}; the script can set SQL's own"
        )
    if find_spec("grpc") is None:
        raise ConfigError("Spark Connect needs more packages; `pip install 'pyspark[connect]'` adds them")


def run_script(
    script: Path,
    arguments: Sequence[str],
    *,
    master: str | None,
    conf: Sequence[str],
    progress: bool | None = None,
    remote: str | None = None,
) -> int:
    """Replace this process by the script, which then gets the signals and gives the exit code. Raises ConfigError.

    `progress` says whether there is a line of progress; None: if somebody watches.
    """
    live = sys.stderr.isatty() if progress is None else progress
    argv, env = launch(script, arguments, master=master, conf=conf, environ=os.environ, live=live, remote=remote)
    env = with_forks(env, os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(argv[0], argv, env)


def with_forks(env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """`env` of a launch, with a server of forked Python processes that ends with this process (`fork_server`).

    None where `environ`, from which `env` was made, names a Python or a Spark.
    """
    home = env.get("SPARK_HOME")
    if home is None or "PYSPARK_PYTHON" in environ or home == environ.get("SPARK_HOME"):
        return dict(env)
    return {**env, **fork_server.start(Path(home) / FORKED_PYTHON, env)}


def find_java(environ: Mapping[str, str]) -> str:
    """The `java` that Spark takes: that of JAVA_HOME if it is set, else the one on the PATH. Raises ConfigError."""
    home = environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else environ.get("PATH"))
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java: correct it" if home else "there is none: set JAVA_HOME"
        raise ConfigError(f"Spark needs Java 17 or newer, and {where}, or install default-jre-headless")
    return java


def _spark_home() -> Path:
    package = _package()
    if package is None:
        raise ConfigError("PySpark is not installed; `pip install 'ottla[spark]'` adds it")
    return package


def _package() -> Path | None:
    found = find_spec("pyspark")
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--conf {text}: expected KEY=VALUE")
    return name, value


def _path(environ: Mapping[str, str]) -> str:
    """PYTHONPATH, with the directory of this package if it is not an installed one."""
    root = str(Path(__file__).resolve().parents[2])
    given = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    installed = root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return os.pathsep.join(given if installed or root in given else [root, *given])


def workers_path(environ: Mapping[str, str]) -> str:
    """PYTHONPATH of a worker: the driver's, and behind it PySpark, which Spark brings along. Raises ConfigError."""
    libraries = sorted((_spark_home() / "python" / "lib").glob("*.zip"))
    return os.pathsep.join(filter(None, [_path(environ), *map(str, libraries)]))


def _quoted(argument: str) -> str:
    """The argument quoted for PYSPARK_SUBMIT_ARGS, which pyspark splits by shlex."""
    return '"' + argument.replace("\\", "\\\\").replace('"', '\\"') + '"'
