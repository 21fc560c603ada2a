"""Tests share modules of their own: no test module imports another, so each can be moved, split or run alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import name_of, python_files


def imported(path: Path) -> Iterator[str]:
    """The names of the modules that a file imports, also inside functions; `from a import b` may mean a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import (`from . import test_x`) names its module in the same way.
            yield from (f"{node.module or ''}.{each.name}" for each in node.names)


def test_no_test_module_is_imported() -> None:
    importing = {
        name_of(path): found
        for path in python_files()
        if (found := {part for name in imported(path) for part in name.split(".") if part.startswith("test_")})
    }
    assert not importing
