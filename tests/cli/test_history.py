"""`ottla history rebalance`: both ways side by side, for a person and as JSON; and what it says where it cannot."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.base.words import counted
from ottla.cli.main import main
from tests.house.tree import ROOT


def _said(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["history", "rebalance", *arguments])
    return code, *capfd.readouterr()


def test_h1_both_ways_stand_side_by_side(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = _said(capfd, "--members", "3", "--partitions", "7", "--seed", "1")
    assert (code, err) == (0, "")
    assert out.startswith("Seed 1: 3 members, 7 partitions; 2 joins, 1 leave, 1 crash, no pauses.\n")
    assert re.search(r"figure +zookeeper +coordinator", out)
    for figure in ("notifications", "requests to coordinate", "two took it for theirs", "nobody read it"):
        assert re.search(rf"{figure}.* [\d.]+ +[\d.]+ *$", out, re.MULTILINE), figure
    events = re.findall(r"^ +[\d.]+ +(start|join|leave|crash) .* s +[\d.]+ s *$", out, re.MULTILINE)
    assert sorted(events) == ["crash", "join", "join", "leave", "start"]
    assert "The herd: " in out
    assert "Split brain: " in out
    assert "stood still" not in out


def test_h1_the_figures_are_there_as_json_and_one_seed_gives_one_history(capfd: pytest.CaptureFixture[str]) -> None:
    asked = ("--members", "3", "--partitions", "5", "--joins", "0", "--pauses", "1", "--seed", "3", "--json")
    (code, out, err), again = _said(capfd, *asked), _said(capfd, *asked)
    assert (code, err) == (0, "")
    assert again == (code, out, err)
    data = json.loads(out)
    assert (data["seed"], data["script"]["members"], data["script"]["pauses"]) == (3, 3, 1)
    for way in ("zookeeper", "coordinator"):
        assert sorted(partition for read in data[way]["reading"].values() for partition in read) == [0, 1, 2, 3, 4]
        happened = [event["event"] for event in data[way]["settled"]]
        assert happened[0] == "start"
        assert sorted(happened) == ["crash", "leave", "pause", "resume", "start"]
    assert data["zookeeper"]["requests"] > data["coordinator"]["requests"] > 0


def test_h1_a_seed_that_nobody_gave_is_drawn_and_told(capfd: pytest.CaptureFixture[str]) -> None:
    small = ("--members", "1", "--partitions", "1", "--joins", "0", "--leaves", "0", "--crashes", "0")
    code, out, err = _said(capfd, *small)
    assert (code, err) == (0, "")
    drawn = re.match(r"Seed (\d+): ", out)
    assert drawn is not None
    assert _said(capfd, *small, "--seed", drawn[1]) == (0, out, "")


def test_h1_what_a_paused_member_commits_is_explained(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _err = _said(capfd, "--joins", "0", "--leaves", "0", "--crashes", "0", "--pauses", "2", "--seed", "1")
    assert code == 0
    assert "A member that stood still does not know that it is out." in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--members", "0"), "ottla: the number of members has to be between 1 and 200, not 0\n"),
        (("--partitions", "0"), "ottla: the number of partitions has to be between 1 and 1000, not 0\n"),
        (("--joins", "-1"), "ottla: the number of joins has to be between 0 and 200, not -1\n"),
        (("--joins", "196"), "5 members and 196 joins are 201 members; at most 200 are modelled"),
        (("--leaves", "7"), "7 leaves and 1 crash, and only 7 members: one has to stay"),
    ],
)
def test_h1_numbers_that_cannot_be_are_one_sentence(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    code, out, err = _said(capfd, *arguments)
    assert (code, out) == (1, "")
    assert sentence in err


@pytest.mark.parametrize("arguments", [("--seed", "blue"), ("--members", "many")])
def test_h1_what_is_no_number_is_a_wrong_command_line(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    code, out, err = _said(capfd, *arguments)
    assert (code, out) == (2, "")
    assert f"Invalid value for '{arguments[0]}'" in err
    assert "Traceback" not in err


def test_h1_an_installed_package_says_that_it_needs_a_checkout(tmp_path: Path) -> None:
    """Also where a stranger's package has the name of ours."""
    installed = tmp_path / "lib" / "python3" / "site-packages"
    shutil.copytree(ROOT / "src", installed, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (installed / "sim").mkdir()
    (installed / "sim" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "history", "rebalance"],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "ottla: `ottla history` needs a checkout of the project: its models are no part of the installed package\n"
    )


def test_h1_a_checkout_finds_its_models_from_any_directory(tmp_path: Path) -> None:
    (tmp_path / "sim.py").write_text("raise SystemExit('a stranger')\n")
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "history", "rebalance", "--members", "2", "--joins", "0", "--seed", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "ottla: 1 leave and 1 crash, and only 2 members: one has to stay\n",
    )


_DEFAULT = ("--seed", "1", "--json")
_MEASURED = {
    "5 members, 20 partitions": ("--members", "5", "--partitions", "20", *_DEFAULT),
    "20 members, 100 partitions": ("--members", "20", "--partitions", "100", *_DEFAULT),
    "50 members, 200 partitions": ("--members", "50", "--partitions", "200", *_DEFAULT),
    "5 members, three pauses": ("--joins", "0", "--leaves", "0", "--crashes", "0", "--pauses", "3", *_DEFAULT),
}
_ROWS = {
    "notifications": "notifications",
    "requests to coordinate": "requests",
    "requests to commit offsets": "commits",
    "rebalances": "rebalances",
    "attempts that failed": "failed_attempts",
    "members that gave up": "given_up",
    "two take it, partition-seconds": "disputed_s",
    "two read it, partition-seconds": "read_by_two_s",
    "nobody reads it, partition-seconds": "unread_s",
    "late commits, accepted": "late_commits_taken",
    "late commits, refused": "late_commits_refused",
}


def _stable(way: dict[str, Any]) -> str:
    """The longest time until stable; or how often that did not come before the next event."""
    after_ms = [event["after_ms"] for event in way["settled"]]
    never = after_ms.count(None)
    return f"not after {counted(never, 'event')} of {len(after_ms)}" if never else f"{max(after_ms) / 1_000:.1f} s"


def test_h1_the_page_shows_what_the_command_measures(capfd: pytest.CaptureFixture[str]) -> None:
    found = [json.loads(_said(capfd, *arguments)[1]) for arguments in _MEASURED.values()]
    ways = [(data["zookeeper"], data["coordinator"]) for data in found]
    rows = [
        ["", *_MEASURED],
        ["---"] * (len(_MEASURED) + 1),
        *(
            [label, *(f"{old[name]:,.{digits}f} / {new[name]:,.{digits}f}" for old, new in ways)]
            for label, name in _ROWS.items()
            for digits in [int(name.endswith("_s"))]
        ),
        ["stable before the next event, after at most", *(f"{_stable(old)} / {_stable(new)}" for old, new in ways)],
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    assert table in (ROOT / "docs" / "history.md").read_text(), f"docs/history.md has to show\n{table}"
