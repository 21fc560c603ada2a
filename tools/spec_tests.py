"""Writes the last column of docs/spec-coverage.md: which tests hold a row of the specification.

usage: python tools/spec_tests.py [--check]      with --check: exit 1 when the page is not what it would be

A test holds a row when a function in it carries the row's id (`test_p3_…`, or `p3_…` in a module that tests share), or
when the first line of the module names the id.
"""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "spec-coverage.md"
#: Letters of the specification's rows: assignment, groups, offsets, client, producer, transactions, Spark, security, H.
ROW_ID = re.compile(r"\b[AGOCPTSXVH][1-9]\d?\b")
_NAME = re.compile(r"(?:test_)?([agocptsxvh][1-9]\d?)_")
_ROW = re.compile(r"^\| ([AGOCPTSXVH][1-9]\d?) \|(?:.*)\|([^|]*)\|$", re.MULTILINE)


def ids_of(source: str) -> set[str]:
    """The rows that a test module holds."""
    tree = ast.parse(source)
    found = set(ROW_ID.findall((ast.get_docstring(tree) or "").partition("\n")[0]))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (match := _NAME.match(node.name)):
            found.add(match[1].upper())
    return found


def tests_by_id() -> dict[str, list[str]]:
    """Row → the test modules that hold it, by their paths below tests/ without `.py`."""
    found: dict[str, list[str]] = defaultdict(list)
    tests = ROOT / "tests"
    for path in sorted(tests.rglob("*.py")):
        if path.parent.name != "house":
            for each in ids_of(path.read_text(encoding="utf-8")):
                found[each].append(path.relative_to(tests).with_suffix("").as_posix())
    return found


def rows_of(page: str) -> dict[str, list[str]]:
    """Row → the tests that the page names for it."""
    return {match[1]: re.findall(r"`([^`]+)`", match[2]) for match in _ROW.finditer(page)}


def with_tests(page: str) -> str:
    """The page with its last column written anew."""
    by_id = tests_by_id()

    def written(match: re.Match[str]) -> str:
        tests = ", ".join(f"`{name}`" for name in by_id.get(match[1], []))
        return f"{match[0][: match.start(2) - match.start()]} {tests} |"

    return _ROW.sub(written, page)


def main() -> int:
    """Write the page, or compare it."""
    old = PAGE.read_text(encoding="utf-8")
    new = with_tests(old)
    if "--check" in sys.argv[1:] and old != new:
        print("out of date: spec-coverage.md; run `make docs`")
        return 1
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
