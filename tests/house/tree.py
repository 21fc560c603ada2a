"""The files of this repository as git knows them, for the tests of the house."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Formats that hold no text of ours.
_BINARY = {".png", ".svg", ".gz", ".jar", ".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".bin"}


@cache
def tracked() -> tuple[Path, ...]:
    """Every file that is committed, or about to be: what `git ls-files` lists and is still there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return tuple(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def python_files() -> tuple[Path, ...]:
    """Tracked Python sources."""
    return tuple(path for path in tracked() if path.suffix == ".py")


def text_files() -> tuple[Path, ...]:
    """Tracked files that are text."""
    return tuple(path for path in tracked() if path.suffix not in _BINARY)


def name_of(path: Path) -> str:
    """Path relative to the repository, for messages."""
    return path.relative_to(ROOT).as_posix()
