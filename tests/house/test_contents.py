"""What no file of the repository may hold: paths of the machine it was written on, registry hosts, leftovers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.house.tree import name_of, python_files, text_files

# Spelled in pieces, so that this file does not hold what it looks for.
_MACHINE_PATHS = ["/wo" + "rk/", "/fa" + "rm/", "/ro" + "ot/", "/ho" + "me/[a-z]", "/tm" + "p/w/"]
_REGISTRY_HOSTS = [
    "pypi" + r"\.org",
    "files" + r"\.pythonhosted",
    "repo1?" + r"\.maven",
    "maven" + r"\.org",
    "central" + r"\.sonatype",
    "deb" + r"\.debian",
    "registry" + r"\.npmjs",
    "proxy" + r"\.golang",
    "index" + "-url",
]
_LEFTOVERS = ["TO" + "DO", "FIX" + "ME", "XX" + "X\\b", "NotImplemented" + "Error"]


def _hits(pattern: str, files: Iterable[Path]) -> list[str]:
    matcher = re.compile(pattern)
    return [
        f"{name_of(path)}:{number}: {line.strip()[:100]}"
        for path in files
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if matcher.search(line)
    ]


@pytest.mark.parametrize("pattern", _MACHINE_PATHS)
def test_no_path_of_this_machine(pattern: str) -> None:
    assert not _hits(rf"(?<![\w.}}]){pattern}", text_files())


@pytest.mark.parametrize("pattern", _REGISTRY_HOSTS)
def test_no_host_of_a_registry(pattern: str) -> None:
    assert not _hits(pattern, text_files())


@pytest.mark.parametrize("pattern", _LEFTOVERS)
def test_nothing_is_left_open_in_src(pattern: str) -> None:
    assert not _hits(pattern, (path for path in python_files() if name_of(path).startswith("src/")))


def test_versions_stop_at_the_edge() -> None:
    """DESIGN, idea 4: nothing outside `wire/` and `broker/handlers/` compares an API version."""
    edge = ("src/ottla/wire/", "src/ottla/broker/handlers/")
    inner = [p for p in python_files() if name_of(p).startswith("src/ottla/") and not name_of(p).startswith(edge)]
    assert not _hits(r"\bapi_version\s*(<|>|==|!=|>=|<=)\s*\d|\d\s*(<|>|==|<=|>=)\s*api_version\b", inner)


def test_the_layout_of_a_batch_header_is_known_in_one_file() -> None:
    """A struct that skips bytes reads one field of a header; positions and the CRC's start are `wire/batch.py`'s."""
    others = [p for p in python_files() if name_of(p).startswith("src/ottla/") and p.name != "batch.py"]
    assert not _hits(r"Struct\(\"[<>]\w*\d+x|\b(CRC_START|LOG_OVERHEAD|_MAGIC_AT)\b", others)


def test_tests_do_not_sleep_or_mock() -> None:
    """STYLE 13: deterministic tests, no mocks of our own code."""
    tests = [path for path in python_files() if name_of(path).startswith("tests/") and path.parent.name != "house"]
    assert not _hits(r"\btime\.sleep\(|asyncio\.sleep\((?!0\))|unittest\.mock|MagicMock|monkeypatch\.setattr", tests)
