"""The Java that Spark starts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from ottla.base.errors import ConfigError
from ottla.cli.doctor.finding import Finding, error, ok, warning

_CHECK = "java"
_OLDEST, _NEWEST = 17, 25
_PATIENCE_S = 30
_INSTALL = "install Java 17, 21 or 25 (Debian: default-jre-headless), or set JAVA_HOME to one that is there"


def major_version(said: str) -> int | None:
    """Java's major version from what `java -version` prints; None if it is not to be found there.

    Before Java 9 the version was called 1.8.
    """
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def check_java(environ: Mapping[str, str]) -> Finding:
    """Whether Spark finds a Java, and one that is new enough."""
    from ottla.spark.run import find_java

    try:
        java = find_java(environ)
    except ConfigError as missing:
        return error(_CHECK, str(missing), _INSTALL)
    try:
        done = subprocess.run(
            [java, "-version"], env=dict(environ), capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return error(_CHECK, f"{java} does not run: {fault}", _INSTALL)
    said = done.stderr + done.stdout
    major = major_version(said)
    if done.returncode != 0 or major is None:
        first = said.strip().partition("\n")[0] or "it says nothing"
        return error(_CHECK, f"{java} -version ends with {done.returncode}: {first}", _INSTALL)
    if major < _OLDEST:
        return error(_CHECK, f"{java} is Java {major}, and Spark needs {_OLDEST} or newer", _INSTALL)
    if major > _NEWEST:
        return warning(
            _CHECK,
            f"{java} is Java {major}, and Spark says of 17, 21 and 25 that it runs on them",
            f"if Spark fails, {_INSTALL}",
        )
    return ok(_CHECK, f"Java {major} ({java})")
