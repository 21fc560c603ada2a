"""What docs/testing.md says of histories is so: the example runs, and the table has every anomaly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ottla.testing import History, check_history
from ottla.testing.history import ANOMALIES
from tests.house.tree import ROOT

_PAGE = (ROOT / "docs" / "testing.md").read_text()


def _example() -> dict[str, Any]:
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL) if "check_history" in block]
    found: dict[str, Any] = {}
    exec(compile(code, "docs/testing.md", "exec"), found)
    return found


def test_v4_the_example_passes_and_leaves_its_history(tmp_path: Path) -> None:
    example = _example()
    example["test_a_crash_loses_no_order_and_doubles_none"](tmp_path)
    history = History.read(tmp_path / "orders.jsonl")
    without = [event for event in history.events if "order 1-50" not in str(event.fact) or event.who != "c"]
    assert len(without) < len(history.events)
    assert {anomaly.name for anomaly in check_history(without)} >= {"unseen"}, "the example would see a lost record"


def test_the_table_is_that_of_the_checkers() -> None:
    table = _PAGE.partition("### Anomalies")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", table, re.MULTILINE) == list(ANOMALIES.items())
