"""The version stands in one place, so that a release changes one line."""

from __future__ import annotations

import importlib.metadata

import ottla
from ottla.base.version import VERSION
from tests.house.tree import ROOT, name_of, python_files


def test_what_is_installed_and_what_is_said_is_that_version() -> None:
    assert importlib.metadata.version("ottla") == ottla.__version__ == VERSION


def test_no_other_file_repeats_it() -> None:
    written = f'"{VERSION}"'
    files = [*python_files(), ROOT / "pyproject.toml"]
    assert [name_of(path) for path in files if written in path.read_text()] == ["src/ottla/base/version.py"]
