"""What docs/testing.md says of histories is so: the example runs, and the table has every anomaly."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import History, check_history
from ottla.testing.history import ANOMALIES
from tests.house.tree import ROOT

_PAGE = (ROOT / "docs" / "testing.md").read_text()


_OF_HISTORIES = "test_a_crash_loses_no_order_and_doubles_none"


def _examples() -> dict[str, Callable[..., Any]]:
    """The tests of all examples, by name."""
    tests: dict[str, Callable[..., Any]] = {}
    for code in re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL):
        found: dict[str, Any] = {}
        exec(compile(code, "docs/testing.md", "exec"), found)
        tests.update({name: value for name, value in found.items() if name.startswith("test_")})
    return tests


@pytest.mark.parametrize("name", sorted(_examples().keys() - {_OF_HISTORIES}))
def test_the_other_examples_pass(name: str, request: pytest.FixtureRequest) -> None:
    test = _examples()[name]
    fixtures = {wanted: request.getfixturevalue(wanted) for wanted in inspect.signature(test).parameters}
    ended = test(**fixtures)
    if inspect.iscoroutine(ended):
        asyncio.run(ended)


def test_v4_the_example_passes_and_leaves_its_history(tmp_path: Path) -> None:
    _examples()[_OF_HISTORIES](tmp_path)
    history = History.read(tmp_path / "orders.jsonl")
    without = [event for event in history.events if "order 1-50" not in str(event.fact) or event.who != "c"]
    assert len(without) < len(history.events)
    assert {anomaly.name for anomaly in check_history(without)} >= {"unseen"}, "the example would see a lost record"


def test_the_table_is_that_of_the_checkers() -> None:
    table = _PAGE.partition("### Anomalies")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", table, re.MULTILINE) == list(ANOMALIES.items())
