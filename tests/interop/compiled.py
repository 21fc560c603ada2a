"""Programs of the interop tests in Java, compiled."""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.interop import apache


@functools.cache
def java_classes(name: str, jars: Callable[[], Path] = apache.jars) -> Path:
    """The directory with the classes of `java/NAME.java`, which is compiled once for each version of it.

    `jars` says where its libraries are. MissingPeerError without Java, its compiler, or these.
    """
    source = Path(__file__).parent / "java" / f"{name}.java"
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    libs = jars()
    classes = libs.parent / f"{name.lower()}-{version}"
    with apache.alone_in_cache():
        if not classes.is_dir():
            _compile(source, libs, classes)
    return classes


def _compile(source: Path, libs: Path, classes: Path) -> None:
    compiler = shutil.which("javac")
    if compiler is None:
        raise apache.MissingPeerError(f"{source.name} is compiled: `javac` is not on the PATH")
    part = classes.with_suffix(".part")
    command = [compiler, "-nowarn", "-d", str(part), "-cp", f"{libs}/*", str(source)]
    subprocess.run(command, check=True, capture_output=True)
    part.rename(classes)
