"""The specification's ids: every one that the code cites is explained in docs/spec-coverage.md, and its tests exist."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

from tests.house.tree import ROOT, name_of, python_files
from tools.spec_tests import PAGE, ROW_ID, ids_of, rows_of

#: A1 … H1 in prose. A version of a protocol ("V2") or an offset's name in code letters (`P1`) is no row.
_CITED = re.compile(r"`[^`]*`|\bV[12]\b|(" + ROW_ID.pattern + ")")
_STATES = {"done", "partly", "later"}


def _prose(source: str) -> str:
    """Docstrings and comments."""
    found = [
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found += [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join(found)


def _cited_in(source: str) -> set[str]:
    return {match[1] for match in _CITED.finditer(_prose(source)) if match[1]}


def _cited(path: Path) -> set[str]:
    source = path.read_text()
    return _cited_in(source) | (ids_of(source) if name_of(path).startswith("tests/") else set())


@cache
def _citing() -> dict[str, set[str]]:
    """File → the rows it cites. The tests of the house speak of ids in general."""
    trees, not_in = ("src/", "tests/", "bench/", "examples/"), ("tests/house/", "src/ottla/wire/messages/")
    files = [
        path for path in python_files() if name_of(path).startswith(trees) and not name_of(path).startswith(not_in)
    ]
    return {name_of(path): cited for path in files if (cited := _cited(path))}


def test_every_id_that_is_cited_is_explained() -> None:
    known = set(rows_of(PAGE.read_text()))
    unknown = {name: sorted(cited - known) for name, cited in _citing().items() if cited - known}
    assert not unknown, "docs/spec-coverage.md has no row for these ids"


def test_the_search_finds_citations() -> None:
    assert len(_citing()) > 80
    assert _cited(ROOT / "src/ottla/coordinator/offsets/commit.py") == {"O1", "T11", "G12"}


def test_every_test_that_is_named_exists_and_carries_the_id() -> None:
    wrong = [
        f"{row}: {name}"
        for row, names in rows_of(PAGE.read_text()).items()
        for name in names
        if not (path := ROOT / "tests" / f"{name}.py").exists() or row not in ids_of(path.read_text())
    ]
    assert not wrong, "run `.venv/bin/python tools/spec_tests.py`"


def test_every_row_has_an_explanation_and_a_state_and_what_is_done_has_a_test() -> None:
    lines = PAGE.read_text().splitlines()
    rows = [line.strip("|").split("|") for line in lines if re.match(rf"\| {ROW_ID.pattern}", line)]
    assert len(rows) == len(rows_of(PAGE.read_text())) > 70
    for row in rows:
        name, meaning, state, missing, tests = (cell.strip() for cell in row)
        assert len(meaning) > 30, f"{name} is not explained"
        assert state in _STATES, f"{name} is {state!r}"
        assert tests or state != "done", f"{name} is done, and no test holds it"
        assert missing or state != "partly", f"{name} does not say what is missing"


def test_ids_in_code_letters_and_protocol_versions_are_no_citations() -> None:
    assert _cited_in('"""SPEC A1: `P1` is a name, V2 a version. X11?"""  # and T9\nC1 = "G1"\n') == {"A1", "X11", "T9"}
