"""STYLE 11: small files, small functions. The exceptions are named here, and the list only shrinks."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.house.tree import name_of, python_files

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
#: Written by a tool from tables; nobody reads them from top to bottom.
GENERATED = ("src/ottla/wire/messages/",)


def _own_files() -> list[Path]:
    return [path for path in python_files() if not name_of(path).startswith(GENERATED)]


def test_no_file_is_longer_than_500_lines() -> None:
    long = {
        name_of(path): lines for path in _own_files() if (lines := len(path.read_text().splitlines())) > MAX_FILE_LINES
    }
    assert not long


def test_no_function_is_longer_than_60_lines() -> None:
    long: dict[str, int] = {}
    for path in _own_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long[f"{name_of(path)}:{node.lineno} {node.name}"] = lines
    assert not long
