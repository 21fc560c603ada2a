"""Every relative link or picture of the documentation leads to a file, and every anchor to a heading."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house.tree import ROOT, name_of, tracked

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _pages() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md"]


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _broken(page: Path, target: str) -> bool:
    if re.match(r"[a-z]+:", target):  # another site, or mailto
        return False
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists() or ROOT not in (file, *file.parents):
        return True
    return bool(anchor) and file.suffix == ".md" and anchor not in _anchors(file)


def test_every_relative_link_leads_somewhere() -> None:
    broken = [
        f"{name_of(page)}: {target}"
        for page in _pages()
        for target in _LINK.findall(_FENCE.sub("", page.read_text()))
        if _broken(page, target)
    ]
    assert not broken


def test_every_decision_record_has_its_parts() -> None:
    """docs/adr/README.md: number and title, status, context, decision, consequences."""
    for record in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md")):
        text = record.read_text()
        assert re.match(r"# \d{4} ", text), f"{record.name}: the title does not start with the number"
        for heading in ("## Context", "## Decision", "## Consequences"):
            assert heading in text, f"{record.name}: no {heading!r}"
        assert re.search(r"^Status: ", text, re.MULTILINE), f"{record.name}: no status"


def test_every_file_that_the_glossary_names_is_there() -> None:
    rows = [line for line in (ROOT / "docs" / "glossary.md").read_text().splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`([\w/]+\.py)`", row)}
    assert len(named) > 20
    assert not [name for name in named if not any((ROOT / folder / name).exists() for folder in ("src/ottla", "."))]
