"""What the user has set for Spark before `ottla run`: in Spark's own file of defaults, and in PYSPARK_SUBMIT_ARGS."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import ConfigError

#: A key and its value, as in a properties file.
_ENTRY = re.compile(r"\s*([^#!=:\s][^=:\s]*)(?:\s*[=:]\s*|\s+)?(.*?)\s*")
_OPTIONS = {"--conf": "--conf", "-c": "--conf", "--master": "--master", "--properties-file": "--properties-file"}
#: What PySpark asks spark-submit for.
SHELL = "pyspark-shell"


class UserSettings(NamedTuple):
    """Settings that are there already. Ours must not hide them."""

    #: PYSPARK_SUBMIT_ARGS without the `pyspark-shell` at its end.
    arguments: Sequence[str]
    conf: Mapping[str, str]

    @property
    def master(self) -> str | None:
        """The master, if one is set."""
        return self.conf.get("spark.master")


def user_settings(environ: Mapping[str, str], home: Path | None) -> UserSettings:
    """Read them. `home` is Spark's, if SPARK_HOME names none. Raises ConfigError for arguments that are none."""
    try:
        arguments = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError as error:
        raise ConfigError(f"PYSPARK_SUBMIT_ARGS cannot be split into arguments: {error}") from None
    if arguments[-1:] == [SHELL]:
        del arguments[-1]
    conf, file = {}, _defaults_file(environ, home)
    for option, value in _options(arguments):
        if option == "--properties-file":
            file = Path(value)
        elif option == "--master":
            conf["spark.master"] = value
        else:
            name, equals, setting = value.partition("=")
            if not equals or not name:
                raise ConfigError(f"PYSPARK_SUBMIT_ARGS has --conf {value}: expected KEY=VALUE")
            if name != "spark.master" or name not in conf:  # --master is above it
                conf[name] = setting
    return UserSettings(arguments, {**_read(file), **conf})


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options of _OPTIONS, `--master` first."""
    found, rest = [], iter(arguments)
    for each in rest:
        name, equals, value = each.partition("=")
        if name in _OPTIONS:
            found.append((_OPTIONS[name], value if equals else next(rest, "")))
    return iter(sorted(found, key=lambda option: option[0] != "--master"))


def _defaults_file(environ: Mapping[str, str], home: Path | None) -> Path | None:
    if environ.get("SPARK_CONF_DIR"):
        return Path(environ["SPARK_CONF_DIR"], "spark-defaults.conf")
    home = Path(environ["SPARK_HOME"]) if environ.get("SPARK_HOME") else home
    return None if home is None else home / "conf" / "spark-defaults.conf"


def _read(file: Path | None) -> dict[str, str]:
    """What the file sets; nothing if it cannot be read. Spark itself says what is wrong with it."""
    try:
        text = "" if file is None else file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    entries = (_ENTRY.fullmatch(line) for line in text.splitlines())
    return {entry[1]: entry[2] for entry in entries if entry is not None}
