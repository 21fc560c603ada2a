"""The picture in the README is drawn from its recording and fetches nothing; the tool shows what a terminal would."""

from __future__ import annotations

import re
import sys

import pytest

from tests.house.tree import ROOT
from tools.picture import COLUMNS, Line, Screen, drawn, folded, load, run

_RECORDING = ROOT / "docs" / "pictures" / "demo.cast"
_PICTURE = ROOT / "docs" / "pictures" / "demo.svg"


def test_the_picture_is_drawn_from_its_recording() -> None:
    assert _PICTURE.read_text() == drawn(*load(_RECORDING)), "run `.venv/bin/python tools/picture.py draw`"


def test_the_picture_fetches_nothing() -> None:
    """GitHub shows an SVG only without what lies elsewhere; the name of SVG's own namespace is no address."""
    text = _PICTURE.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.findall(r"//\w|@import|<script|<image|href", text)


def test_the_recorded_demo_ended_well() -> None:
    _title, lines = load(_RECORDING)
    said = "\n".join(line.text for line in lines)
    assert "Exactly once: every word arrived once" in said
    assert dict(re.findall(r"(lost|duplicated|unexplained)\s+([\d,]+)", said)) == {
        "lost": "0",
        "duplicated": "0",
        "unexplained": "0",
    }


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (["a\r\nb\r\n"], ["a", "b"]),
        (["10%\r", "20%\r", "100%\r\n"], ["100%"]),
        (["bar 1", "\r\x1b[2Ksaid\r\nbar 2"], ["said", "bar 2"]),
        (["one\r\ntwo\r\n\x1b[2Anew"], ["new", "two"]),
        (["\x1b[3", "2mgreen\x1b[0m plain"], ["\x1b[0m\x1b[32mgreen\x1b[0m plain"]),
        (["x" * COLUMNS + "yz"], ["x" * COLUMNS, "yz"]),
        (["\x1b[?25labc\r\x1b[Kd"], ["d"]),
    ],
)
def test_the_screen_shows_what_a_terminal_would(written: list[str], shown: list[str]) -> None:
    screen = Screen()
    for at_s, each in enumerate(written):
        screen.feed(at_s, each)
    assert [line.text for line in screen.lines] == shown


def test_a_line_has_the_time_of_its_last_change() -> None:
    screen = Screen()
    for at_s, each in enumerate(["first\r\nbar 1", "\rbar 2", "\r\x1b[2Kbar 2"]):
        screen.feed(float(at_s), each)
    assert screen.lines == [Line(0.0, "first"), Line(1.0, "bar 2")]


def test_pauses_are_cut_to_a_second_and_empty_lines_at_the_end_left_out() -> None:
    lines = [Line(0.5, "a"), Line(40.0, "b"), Line(40.25, "c"), Line(90.0, "")]
    assert folded(lines) == [Line(0.5, "a"), Line(1.5, "b"), Line(1.75, "c")]


def test_a_command_runs_in_a_terminal_and_its_exit_code_comes_back() -> None:
    program = "import os, sys; print(os.isatty(1), os.get_terminal_size().columns); sys.exit(3)"
    code, lines = run([sys.executable, "-c", program])
    assert (code, [line.text for line in lines]) == (3, [f"True {COLUMNS}"])
